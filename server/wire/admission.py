"""Which requests are worked on, which wait, and which are told to come later: by the kind of their work.

A request is judged twice: before its body is read, so that a crowd hears within a moment, and when its body is whole.
Only then does the request hold a place: a client that sends no body keeps nobody out.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import OctavoError, QueueFullError
from server.errors import ClientGoneError
from server.serving import Serving
from server.wire.body import SHORT_BYTES, Body, BodyIntake, declared_length
from server.wire.endpoint import Work, resource_of
from server.wire.wire_error import error_response

# Requests of Work.TEXT that are worked on at once: short ones, and long ones, which keep no short one waiting. More
# would take the processor from the engine, and be no faster.
TEXTS_AT_ONCE = 1
MOST_WAITING_TEXTS = 64  # of each of the two
TEXT_RETRY_SECONDS = 1.0


class Place:
    """What an admitted request holds: given back when its work is done, at the latest when its answer begins."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []

    def hold(self, give_back: Callable[[], None]) -> None:
        self._held.append(give_back)

    def leave(self) -> None:
        """Give all back; may be called again."""
        while self._held:
            self._held.pop()()


class Room(Protocol):
    """The places for one kind of work."""

    def check(self, nbytes: int) -> None:
        """Raise QueueFullError or EngineNotReadyError where a request with such a body has no place now."""

    async def enter(self, place: Place, nbytes: int, receive: Receive) -> None:
        """Take a place, or wait for one; raises as `check` does, or ClientGoneError."""


class QueueRoom:
    """Counts the requests that are being planned as if they were in the engine's queue."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._planned = 0

    def check(self, nbytes: int) -> None:
        self._serving.model.service.check_room(self._planned + 1)

    async def enter(self, place: Place, nbytes: int, receive: Receive) -> None:
        self.check(nbytes)
        self._planned += 1
        place.hold(self._leave)

    def _leave(self) -> None:
        self._planned -= 1


class TextRoom:
    """Two lines: one for short bodies, one for long ones."""

    def __init__(self, at_once: int, most_waiting: int) -> None:
        self._short = Line(at_once, most_waiting)
        self._long = Line(at_once, most_waiting)

    def check(self, nbytes: int) -> None:
        self._line(nbytes).check()

    async def enter(self, place: Place, nbytes: int, receive: Receive) -> None:
        await self._line(nbytes).enter(place, receive)

    def _line(self, nbytes: int) -> "Line":
        return self._short if nbytes <= SHORT_BYTES else self._long


class Line:
    """A few at once, in the order in which they came; so many may wait."""

    def __init__(self, at_once: int, most_waiting: int) -> None:
        self._limiter = anyio.CapacityLimiter(at_once)
        self._most_waiting = most_waiting

    def check(self) -> None:
        if self._limiter.statistics().tasks_waiting >= self._most_waiting:
            raise QueueFullError(self._most_waiting, retry_after=TEXT_RETRY_SECONDS)

    async def enter(self, place: Place, receive: Receive) -> None:
        self.check()
        place.hold(lambda: self._leave(place))
        try:
            self._limiter.acquire_on_behalf_of_nowait(place)
        except anyio.WouldBlock:
            await self._wait(place, receive)

    async def _wait(self, place: Place, receive: Receive) -> None:
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_cancel_if_gone, waiting.cancel_scope, receive)
            await self._limiter.acquire_on_behalf_of(place)
            waiting.cancel_scope.cancel()
        if not self._has(place):
            raise ClientGoneError("The client closed the connection while its request waited.")

    def _has(self, place: Place) -> bool:
        return place in self._limiter.statistics().borrowers

    def _leave(self, place: Place) -> None:
        if self._has(place):
            self._limiter.release_on_behalf_of(place)


async def _cancel_if_gone(scope: anyio.CancelScope, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class Admission:
    """ASGI middleware. Its scope has "octavo.content", the Body of what has work, and "octavo.place"."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self.app = app
        most, seconds = serving.options.max_body_bytes, serving.options.body_seconds
        # Apart from each other, so that texts that wait take no memory from chats.
        self._intakes = {work: BodyIntake(most, seconds) for work in Work}
        self._rooms: dict[Work, Room] = {
            Work.ANSWER: QueueRoom(serving),
            Work.TEXT: TextRoom(TEXTS_AT_ONCE, MOST_WAITING_TEXTS),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        place = Place()
        try:
            try:
                content = await self._admit(scope, receive, place)
            except OctavoError as error:
                place.leave()
                await error_response(error)(scope, receive, send)
            else:
                within = {**scope, "octavo.content": content, "octavo.place": place}
                await self.app(within, receive, _leaving(place, send))
        finally:
            place.leave()

    async def _admit(self, scope: Scope, receive: Receive, place: Place) -> Body | None:
        work = resource_of(scope).work(scope["method"])
        room, intake = self._rooms.get(work), self._intakes[work]
        if room is not None:
            room.check(declared_length(scope))
        intake.check_declared(scope)
        if room is None:
            return None
        body = await intake.read(receive)
        place.hold(body.release)
        await room.enter(place, body.nbytes, receive)
        return body


def _leaving(place: Place, send: Send) -> Send:
    """What is sent is done; and sending may take as long as a client likes."""

    async def send_and_leave(message: Message) -> None:
        place.leave()
        await send(message)

    return send_and_leave
