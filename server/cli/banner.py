"""What `octavo serve` says when it is ready, and its warning when it listens to the network."""

import ipaddress

import orjson
from rich.console import Console

from server.served import ServedModel

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened on everywhere, reached here


def print_banner(console: Console, model: ServedModel, host: str, port: int, bytes_per_second: float) -> None:
    url = base_url(host, port)
    for line in _facts(model, url, bytes_per_second):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"\n{_curl_line(model, url)}\n", highlight=False, markup=False, soft_wrap=True)


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


def _curl_line(model: ServedModel, url: str) -> str:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = orjson.dumps({"model": model.id, "messages": messages, "temperature": 0}).decode()
    return f"curl {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def exposure_warning(host: str) -> str | None:
    if _is_loopback(host):
        return None
    return (
        f"Warning: listening on {host}, and this server asks for no key:"
        " whoever reaches the port can use the model. Put a proxy in front of it, or leave --host at 127.0.0.1."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
