"""A uvicorn server whose end is ours: drain first, then close."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from server.binding import BACKLOG
from server.http_protocol import BoundedProtocol
from server.serving import Serving

KEEP_ALIVE_SECONDS = 75
FLUSH_SECONDS = 5  # for last bytes to reach clients, once the engine has ended every request


class HttpServer(uvicorn.Server):
    """Idle without a timer, and drains before it closes. Signals are left to the caller."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        # RequestContext sends the date; uvicorn would keep its own up to date ten times a second.
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            lifespan="on",
            ws="none",
            access_log=False,
            log_config=None,
            date_header=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FLUSH_SECONDS,
        )
        super().__init__(config)
        self._serving = serving
        self._exit_requested = asyncio.Event()

    def request_exit(self) -> None:
        """Begin to stop; call it in the event loop."""
        self.should_exit = True
        self._exit_requested.set()

    async def main_loop(self) -> None:
        await self._exit_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The socket stays open for the drain, so that new requests hear 503 and not a refused connection.
        await self._serving.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
