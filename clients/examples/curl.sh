#!/bin/sh
# Ask the server with curl: one whole answer, then one streamed. Usage: curl.sh [URL] [MODEL]
set -eu
url="${1:-http://127.0.0.1:8080}"
model="${2:-smollm2-135m}"
messages='[{"role": "user", "content": "What is the capital of France?"}]'

curl --fail-with-body --silent --show-error "$url/v1/chat/completions" \
  --header 'Content-Type: application/json' \
  --data "{\"model\": \"$model\", \"messages\": $messages, \"temperature\": 0, \"max_tokens\": 64}"
echo

curl --fail-with-body --silent --show-error --no-buffer "$url/v1/chat/completions" \
  --header 'Content-Type: application/json' \
  --data "{\"model\": \"$model\", \"messages\": $messages, \"temperature\": 0, \"max_tokens\": 64, \"stream\": true}"
