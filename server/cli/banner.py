"""What `octavo serve` says when it is ready."""

import orjson
from rich.console import Console

from server.served import ServedModel

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened on everywhere, reached here


def print_banner(
    console: Console, model: ServedModel, host: str, port: int, bytes_per_second: float, *, has_keys: bool
) -> None:
    url = base_url(host, port)
    for line in _facts(model, url, bytes_per_second):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"\n{_curl_line(model, url, has_keys)}\n", highlight=False, markup=False, soft_wrap=True)


def base_url(host: str, port: int) -> str:
    reachable = WILDCARDS.get(host, host)
    return f"http://[{reachable}]:{port}/v1" if ":" in reachable else f"http://{reachable}:{port}/v1"


def _facts(model: ServedModel, url: str, bytes_per_second: float) -> list[str]:
    names = ", ".join((model.id, *model.aliases))
    allowed = bytes_per_second / max(model.bytes_per_token, 1)
    return [
        f"Octavo is ready at {url}",
        f"  model      {names} ({model.architecture}, {model.file_bytes / 1e6:,.0f} MB)",
        f"  types      {model.weight_types}",
        f"  context    {model.context_length} tokens",
        f"  lanes      {model.lanes}",
        f"  threads    {model.threads}, instruction tier {model.isa}",
        f"  bandwidth  {bytes_per_second / 1e9:.1f} GB/s measured; it allows {allowed:,.0f} tok/s for one sequence",
    ]


def _curl_line(model: ServedModel, url: str, has_keys: bool) -> str:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = orjson.dumps({"model": model.id, "messages": messages, "temperature": 0}).decode()
    key = """ -H "Authorization: Bearer $OCTAVO_API_KEY\"""" if has_keys else ""
    return f"curl {url}/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
