"""Ask the server with the OpenAI SDK for Python: one whole answer, then one streamed.

Usage: python openai_python.py [URL] [MODEL]   (pip install openai)
"""

import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


def main(url: str = "http://127.0.0.1:8080", model: str = "smollm2-135m") -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="not-needed")
    answer = client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, max_tokens=64)
    print(answer.choices[0].message.content)
    print(answer.usage)

    stream = client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        temperature=0,
        max_tokens=64,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
