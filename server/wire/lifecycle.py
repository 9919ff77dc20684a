"""The listening socket, and a uvicorn server whose end is ours: drain first, then close."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from engine.errors import OctavoError
from server.serving import Serving
from server.wire.http_protocol import BoundedProtocol

KEEP_ALIVE_SECONDS = 75
FLUSH_SECONDS = 5  # for last bytes to reach clients, once the engine has ended every request
BACKLOG = 2048
# Of a connection on which nothing is sent: the silence in seconds before the kernel asks whether the other end is still
# there, the seconds between such questions, and how many of them may stay without an answer.
PROBES = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class BindError(OctavoError):
    """The address cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises BindError with one sentence that says what to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BindError(f"Cannot resolve the host '{host}': {error.strerror or error}; check --host.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as on what it accepts
        for option, value in PROBES:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BindError(_bind_failure(error, host, port)) from error
    listener.setblocking(False)
    return listener


def _bind_failure(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use by another program; stop it, or choose another with --port."
        case errno.EACCES | errno.EPERM:
            return f"Port {port} needs more rights than this user has; choose one above 1023 with --port."
        case errno.EADDRNOTAVAIL:
            return f"This machine has no address {host}; choose another with --host."
        case _:
            return f"Cannot listen on {host}, port {port}: {error.strerror or error}."


class HttpServer(uvicorn.Server):
    """Idle without a timer of uvicorn's, and drains before it closes. Signals are left to the caller."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        # The drain is ours: sse-starlette would cut every stream when the drain begins.
        AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
        # RequestContext sends the date; uvicorn would keep its own up to date ten times a second.
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            lifespan="on",
            ws="none",
            access_log=False,
            proxy_headers=False,  # nobody asks where a request came from
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
        await self._accept_no_more(sockets or [])
        await super().shutdown(sockets)
        # Who has not read its last bytes in time is cut off.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which the transports close their sockets

    async def _accept_no_more(self, listeners: list[socket.socket]) -> None:
        """Leave new connections to the kernel, and let those just accepted become known.

        asyncio accepts in one turn of the loop and makes the transport in the next; where its server has been closed
        in between, that fails, and leaves an open socket (`Server._attach` in asyncio/base_events.py).
        """
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(2):  # a turn for the transport, one for its protocol
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
