"""What every HTTP exchange carries: a request id, a date, a path in its plain form with what lies there, safe headers.

Its scope also has "octavo.send", the server's own: all middleware is done with an answer once its head is sent. And
"octavo.body", where the server has one (server/wire/http_writes.py): what is written there need not be waited for.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import lru_cache

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.wire.endpoint import Resources

SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
ID_DIGITS, IDS_AT_ONCE = 24, 256
SLASHES = re.compile(r"/{2,}")

OnStatus = Callable[[str, int], None]  # (path, status)


class RequestContext:
    """Outermost ASGI middleware; `draining` tells whether connections should be closed after their answer."""

    def __init__(
        self, app: ASGIApp, resources: Resources, draining: Callable[[], bool], on_status: OnStatus | None = None
    ) -> None:
        self.app = app
        self.resources = resources
        self.draining = draining
        self.on_status = on_status
        self._ids = _random_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        offered = Headers(scope=scope).get("x-request-id", "")
        request_id = offered if SANE_REQUEST_ID.fullmatch(offered) else next(self._ids)
        path = plain_path(scope["path"])
        body = scope.pop("octavo.body", None)  # it holds the server's own scope, which should not hold it in turn
        resource = self.resources.at(path)
        scope = {
            **scope,
            "path": path,
            "octavo.request_id": request_id,
            "octavo.resource": resource,
            "octavo.words": resource.words,
            "octavo.send": send,
            "octavo.body": body,
        }
        await self.app(scope, receive, self._with_headers(send, request_id, path))

    def _with_headers(self, send: Send, request_id: str, path: str) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode("latin-1")),
                    (b"date", http_date(int(time.time()))),
                    (b"x-content-type-options", b"nosniff"),
                ]
                if self.draining():
                    MutableHeaders(scope=message)["Connection"] = "close"
                if self.on_status is not None:
                    self.on_status(path, message["status"])
            await send(message)

        return send_with_headers


@lru_cache(1)
def http_date(seconds: int) -> bytes:
    """A time since the epoch as headers have it."""
    return formatdate(seconds, usegmt=True).encode()


def plain_path(path: str) -> str:
    """One slash where there are several, and none at the end: clients join base URLs as they like."""
    return SLASHES.sub("/", path).rstrip("/") or "/"


def _random_ids() -> Iterator[str]:
    """Without end; drawn many at a time, since each call of the system lets other threads have the interpreter."""
    while True:
        digits = secrets.token_hex(ID_DIGITS // 2 * IDS_AT_ONCE)
        for start in range(0, len(digits), ID_DIGITS):
            yield f"req_{digits[start : start + ID_DIGITS]}"
