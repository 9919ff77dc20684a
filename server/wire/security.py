"""API keys: which a server knows, and the door that stays closed without one."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import OctavoError
from server.errors import ApiKeyError
from server.wire.endpoint import resource_of
from server.wire.wire_error import error_response


class KeyFileError(OctavoError):
    """The file of API keys cannot be used."""


class ApiKeys:
    """The keys that open a server, kept as hashes only."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = tuple(dict.fromkeys(_digest(key.encode()) for key in keys))

    def __bool__(self) -> bool:
        return bool(self._digests)

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The hash of the first key of a request's headers that is known; None if there is none."""
        for presented in _presented(headers):
            digest = _digest(presented)
            # Compared with every key, so that the time taken tells nothing.
            if sum(hmac.compare_digest(digest, known) for known in self._digests):
                return digest.hex()
        return None


class KeyGuard:
    """ASGI middleware: 401 without a key, except for open paths. scope["octavo.caller"] names the caller.

    It judges by the resource at scope["path"], which is what the router goes by: a URL rebuilt from the Host header may
    lie. Open paths hold no data.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        caller = self.keys.caller(scope["headers"]) if self.keys else ""
        if caller is None and not resource_of(scope).is_open:
            await error_response(ApiKeyError())(scope, receive, send)
            return
        await self.app({**scope, "octavo.caller": caller or ""}, receive, send)


def read_key_file(path: Path) -> tuple[str, ...]:
    """The keys of a file, one a line; lines that begin with # are comments."""
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise KeyFileError(f"Cannot read the API keys in {path}: {reason}; check --api-key-file.") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise KeyFileError(f"{path} holds no API key; write one a line.")
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _presented(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield from _spellings(key.strip())
        elif name == b"x-api-key":
            yield from _spellings(value.strip())


def _spellings(key: bytes) -> Iterator[bytes]:
    """A key beyond ASCII is sent as UTF-8 by some clients, and as Latin-1 by others."""
    yield key
    if not key.isascii():
        yield key.decode("latin-1").encode()
