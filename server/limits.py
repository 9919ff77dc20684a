"""The body size limit, enforced while the body is read."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import BodyTooLargeError, error_response

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024


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
