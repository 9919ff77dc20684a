"""Limits on a body: its size while it is read, and how deep its JSON nests before it is parsed."""

import numpy as np
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import RequestError
from server.errors import BodyTooLargeError, error_response

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100  # objects and arrays within each other; what walks a body later may recurse as deep
CHUNK = 1 << 18

QUOTE = ord('"')
STEPS = np.zeros(256, np.int32)  # how each byte outside strings changes the depth
STEPS[list(b"[{")] = 1
STEPS[list(b"]}")] = -1


def check_depth(raw: bytes) -> None:
    """Refuse JSON that nests deeper than MAX_DEPTH; linear in its length. Whether it is JSON at all is not judged."""
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        raise RequestError(f"The body is nested deeper than {MAX_DEPTH} levels; make it flatter.", code="invalid_json")


def _depth(raw: bytes) -> int:
    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    deepest = depth = 0
    in_string = False
    for start in range(0, len(without_escapes), CHUNK):
        data = np.frombuffer(without_escapes[start : start + CHUNK], np.uint8)
        inside = np.logical_xor.accumulate(data == QUOTE) ^ in_string
        depths = depth + np.cumsum(np.where(inside, 0, STEPS[data]))
        deepest = max(deepest, int(depths.max()))
        depth, in_string = int(depths[-1]), bool(inside[-1])
    return deepest


class BodyLimit:
    """ASGI middleware: refuses a body above the limit, at once if its length is declared, else when it gets there."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif _declared_length(scope) > self.max_bytes:
            await error_response(BodyTooLargeError(self.max_bytes))(scope, receive, send)
        else:
            await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.max_bytes:
                raise BodyTooLargeError(self.max_bytes)
            return message

        return counted


def _declared_length(scope: Scope) -> int:
    value = Headers(scope=scope).get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0
