"""Recorded cases on a real socket: heads as they are sent, and bytes that are no HTTP."""

import json
from typing import Any

from tests.server.harness import CHAT
from tests.server.recorded_cases.exchange import Build, Case, says

CHATS = "/v1/chat/completions"
HELLO = says("Hello", " wörld")


def request(method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    described = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{described}\r\n".encode() + content


def sent(name: str, raw: bytes, model: Build = HELLO) -> Case:
    return Case(api="wire", name=name, raw=raw, model=model)


CASES: list[Case] = [
    sent("a chat", request("POST", CHATS, CHAT)),
    sent("a chat, streamed", request("POST", CHATS, {**CHAT, "stream": True})),
    sent("a message, streamed", request("POST", "/v1/messages", {**CHAT, "max_tokens": 9, "stream": True})),
    sent(
        "a response, streamed", request("POST", "/v1/responses", {"model": "scripted", "input": "Hi", "stream": True})
    ),
    sent("health", request("GET", "/health")),
    sent("HEAD of health", request("HEAD", "/health")),
    sent("an unknown path", request("GET", "/nope")),
    sent("a method that the path does not take", request("GET", CHATS)),
    sent("bytes that are no HTTP", b"GARBAGE\r\n\r\n"),
    sent("no host", b"GET /health HTTP/1.1\r\n\r\n"),
    sent("a head that is too large", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65_500),
]
