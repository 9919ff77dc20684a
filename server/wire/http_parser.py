"""The parser of requests: httptools', to which offers to upgrade and fields behind a body mean nothing.

httptools ends a message with its head where the client offers another protocol (`Connection: Upgrade` and `Upgrade`),
and takes what follows for a new request: a body would be run as one. This server takes no such offer, and an offer
that is not taken is ignored (RFC 9110, 7.8).
"""

from typing import Protocol

import httptools


class Target(Protocol):
    """Who hears of requests: the names are httptools', the attributes uvicorn's."""

    url: bytes
    headers: list[tuple[bytes, bytes]]

    def on_message_begin(self) -> None: ...

    def on_url(self, url: bytes) -> None: ...

    def on_header(self, name: bytes, value: bytes) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None: ...

    def on_chunk_header(self) -> None: ...


class RequestParser:
    """Has the methods of httptools.HttpRequestParser that uvicorn uses.

    Where httptools stops behind a head, a new parser is told the same head without the offer, and then the rest.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_within_head = False  # fields behind a body are not headers: they come too late to be judged
        self._is_retold = False  # the target has heard of this head already
        self._parser = httptools.HttpRequestParser(self)

    def feed_data(self, data: bytes) -> None:
        """Parse the next bytes of the connection; raises httptools.HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._retell_head()
            else:
                return

    def _retell_head(self) -> None:
        line = b"%b %b HTTP/%b" % (self.get_method(), self._target.url, self.get_http_version().encode())
        kept = [b"%b: %b" % field for field in self._target.headers if field[0].lower() != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._is_retold = True
        self._parser.feed_data(b"\r\n".join((line, *kept, b"", b"")))

    def close(self) -> None:
        """Let go of the parser underneath, which refers to this one."""
        del self._parser

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        return False

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._is_within_head = True
        if not self._is_retold:
            self._target.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_retold:
            self._target.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_within_head and not self._is_retold:
            self._target.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.get_method() == b"CONNECT":
            raise ValueError("a tunnel through this server")  # there is no end to what it would be sent
        if not self._parser.should_upgrade():
            self._is_within_head = self._is_retold = False
            self._target.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._target.on_body(body)

    def on_chunk_header(self) -> None:
        self._target.on_chunk_header()

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._target.on_message_complete()
