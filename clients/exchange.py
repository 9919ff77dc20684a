"""One POST over a connection of its own, with few instructions a byte: a measuring client shares the server's cores."""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, cast
from urllib.parse import urlsplit

import httptools

CONNECT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    is_secure: bool = False

    @classmethod
    def of(cls, url: str) -> Self:
        """Of a URL without a path, as http://127.0.0.1:8080; raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server; write it as http://127.0.0.1:8080.")
        is_secure = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if is_secure else 80), is_secure)

    def post(self, path: str, body: Mapping[str, object]) -> bytes:
        """The bytes of a request that is the last of its connection."""
        content = json.dumps(body).encode()
        host = f"[{self.host}]" if ":" in self.host else self.host
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + content


class Exchange(asyncio.Protocol):
    """An open connection; `send` may come much later, and closing it before the answer's end abandons the request."""

    def __init__(self, on_body: Callable[[bytes], None]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case
        self._on_body = on_body
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, address: Address, on_body: Callable[[bytes], None]) -> Self:
        """Connect; `on_body` gets the answer's body in the pieces that arrive. Raises OSError."""
        context = ssl.create_default_context() if address.is_secure else None
        async with asyncio.timeout(CONNECT_SECONDS):
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: cls(on_body), address.host, address.port, ssl=context
            )
        return exchange

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    async def wait(self) -> None:
        """Wait for the answer's end. Raises ConnectionError where it is cut short, or is no HTTP."""
        await self._complete

    def close(self) -> None:
        self._complete.cancel()  # unless it is done
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(error.__context__ or ConnectionError(f"The server's answer is no HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("The server closed the connection before the end of its answer."))

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._on_body(body)

    def on_message_complete(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._complete.done():
            return
        if error is None:
            self._complete.set_result(None)
        else:
            self._complete.set_exception(error)
        self.close()
