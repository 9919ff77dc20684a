"""A request's body: read within its bounds, checked, and made the type that its endpoint takes.

A body is read whole: of bounded size, in bounded time, and within the memory that all bodies share.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import anyio
import orjson
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope

from engine.errors import RequestError
from server.errors import (
    BodyTooLargeError,
    ClientGoneError,
    MediaTypeError,
    RequestTimeoutError,
    UploadsFullError,
    clip,
)
from server.fields.parameters import Nested, Parameter, ignored_parameters, strictly
from server.validation import request_error
from server.wire.limits import check_depth

LEAST_SPEED = 1024  # bytes a second that a body must bring on average of each span of `seconds`
MOST_HELD = 128 * 1024 * 1024  # bytes of bodies whose requests are not yet planned or answered, all together
SHORT_BYTES = 64 * 1024  # of a body that has room where MOST_HELD is held already
SHORT_RESERVE = 32 * 1024 * 1024  # for all of those


class Body:
    """The bytes of one body, as they come and until they are taken."""

    def __init__(self, memory: "BodyMemory") -> None:
        self.nbytes = 0
        self.reading = anyio.CancelScope()
        self.is_crowded_out = False
        self._memory = memory
        self._data = bytearray()

    def add(self, piece: bytes) -> None:
        """Keep another piece; raises UploadsFullError where it has no room."""
        self.nbytes += len(piece)
        self._data += piece
        self._memory.add(self, len(piece))

    def take(self) -> bytes:
        """The whole body, which is not kept here any longer; its memory counts until it is released."""
        data, self._data = bytes(self._data), bytearray()
        return data

    def release(self) -> None:
        """Its memory is free, or soon will be; may be called again."""
        self._data = bytearray()
        self._memory.release(self)


class BodyMemory:
    """What all bodies hold together. Where that is too much, the largest of those still being read is given up.

    So a client that fills the memory with large bodies loses them first, and small requests go on: there is room for
    them even where large ones have been read and wait for their turn.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self._bodies: dict[Body, None] = {}
        self._unfinished: dict[Body, None] = {}

    def add(self, body: Body, nbytes: int) -> None:
        """Count what a body that is being read has grown by; raises UploadsFullError if it is the one given up."""
        self._bodies[body] = self._unfinished[body] = None
        self.held_bytes += nbytes
        room = self.most_bytes + (SHORT_RESERVE if body.nbytes <= SHORT_BYTES else 0)
        while self.held_bytes > room:
            largest = max(self._unfinished, key=lambda one: one.nbytes)
            largest.release()
            if largest is body:
                raise UploadsFullError
            largest.is_crowded_out = True
            largest.reading.cancel()

    def is_whole(self, body: Body) -> None:
        """A body has been read, and is not given up any more."""
        self._unfinished.pop(body, None)

    def release(self, body: Body) -> None:
        """Count a body no longer; it need not be counted."""
        if body in self._bodies:
            del self._bodies[body]
            self._unfinished.pop(body, None)
            self.held_bytes -= body.nbytes


class BodyIntake:
    """Belongs to the event loop's thread."""

    def __init__(self, max_bytes: int, seconds: float, most_held: int = MOST_HELD) -> None:
        """`seconds`: the span in which a body must bring LEAST_SPEED times as many bytes, or its end."""
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.memory = BodyMemory(max(most_held, max_bytes))

    def check_declared(self, scope: Scope) -> None:
        """Raise BodyTooLargeError where the head says so."""
        if declared_length(scope) > self.max_bytes:
            raise BodyTooLargeError(self.max_bytes)

    async def read(self, receive: Receive) -> Body:
        """The whole body, whose memory the caller releases.

        Raises BodyTooLargeError, RequestTimeoutError, UploadsFullError, ClientGoneError.
        """
        body = Body(self.memory)
        try:
            await self._fill(body, receive)
        except BaseException:
            body.release()
            raise
        self.memory.is_whole(body)
        return body

    async def _fill(self, body: Body, receive: Receive) -> None:
        least = int(self.seconds * LEAST_SPEED)
        due = 0
        with body.reading as reading:
            while True:
                if body.nbytes >= due:
                    due = body.nbytes + least
                    reading.deadline = anyio.current_time() + self.seconds
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError("The client closed the connection within its request.")
                body.add(message.get("body", b""))
                if body.nbytes > self.max_bytes:
                    raise BodyTooLargeError(self.max_bytes)
                if not message.get("more_body", False):
                    return
        if body.is_crowded_out:
            raise UploadsFullError
        raise RequestTimeoutError(self.seconds)


def declared_length(scope: Scope) -> int:
    """The bytes of the body that the head announces; 0 where it does not."""
    value = Headers(scope=scope).get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0


LONGEST_AT_ONCE = 1 << 18  # bytes that are decoded and checked on the event loop

B = TypeVar("B", bound=BaseModel)


async def read_body(
    http: Request, model: type[B], table: Mapping[str, Parameter], *, strict: bool, nested: Nested | None = None
) -> B:
    """Decode and check the body of one request, which has been read; raises RequestError and its kin.

    The names of what has no effect are kept for ignored_of.
    """
    _check_media_type(http.headers.get("content-type", ""))
    content: Body = http.scope["octavo.content"]
    raw = content.take()
    if len(raw) > LONGEST_AT_ONCE:  # other streams go on meanwhile
        body, ignored = await run_in_threadpool(parse_bytes, raw, model, table, strict=strict, nested=nested)
    else:
        body, ignored = parse_bytes(raw, model, table, strict=strict, nested=nested)
    http.scope["octavo.ignored"] = ignored
    return body


def ignored_of(http: Request) -> list[str]:
    """The names of what a request's body asks for in vain."""
    ignored: list[str] = http.scope["octavo.ignored"]
    return ignored


def parse_bytes(
    raw: bytes, model: type[B], table: Mapping[str, Parameter], *, strict: bool, nested: Nested | None = None
) -> tuple[B, list[str]]:
    """Decode and check a body; the names of what has no effect too."""
    given, notes = _unwrap_extra_body(_json_object(raw))
    notes += ignored_parameters(given, table, nested)
    if strict:
        strictly(notes)
    try:
        return model.model_validate(given), notes
    except ValidationError as error:
        raise request_error(error, given) from None


def _check_media_type(content_type: str) -> None:
    # Also what keeps a page of another site from posting here without the browser asking first.
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise MediaTypeError(content_type)


def _json_object(raw: bytes) -> dict[str, Any]:
    check_depth(raw)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The body is not valid JSON: {clip(str(error))}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_type")
    return value


def _unwrap_extra_body(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """`extra_body` is an argument of the SDK, which merges it into the body; written out by hand it means the same."""
    extra = body.get("extra_body")
    if not isinstance(extra, dict):
        return body, []
    rest = {name: value for name, value in body.items() if name != "extra_body"}
    return {**rest, **extra}, ["extra_body"]
