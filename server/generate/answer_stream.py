"""One answer on its way: the engine's events become updates of its choices, in the order in which they come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from engine.api.request import Event, FinishEvent, FinishReason, TextEvent, Token
from engine.errors import EngineNotReadyError
from engine.text.formats.parts import CallBegin, CallEnd, Part
from server.errors import AnswerCancelledError
from server.generate.answer import Finish, Plan, Reason, Update
from server.logs import RequestLog
from server.served import EventStream
from server.serving import OpenRequest

_CALL_BOUNDS = (CallBegin, CallEnd)


class AnswerStream(OpenRequest):
    """The updates of one admitted plan, as the engine makes them."""

    def __init__(self, plan: Plan, streams: Sequence[EventStream], log: RequestLog, caller: str) -> None:
        super().__init__(log, caller)
        self.plan = plan
        self._streams = streams
        self._parsers = [plan.new_parser() for _ in streams]
        self._called = [False] * len(streams)  # whether the choice's last call is complete
        self._unfinished = len(streams)

    def abort(self) -> None:
        for stream in self._streams:
            stream.abort()

    def listen(self, listener: Callable[[TextEvent], bool]) -> None:
        """While the reader of `updates` waits, offer texts to `listener` instead; False leaves them to the reader.

        Only where there is one choice: of several, the reader of `updates` has all, which keeps their order.
        """
        if len(self._streams) == 1:
            self._streams[0].listen(listener)

    async def updates(self) -> AsyncIterator[Update]:
        """Every choice up to its finish; raises EngineNotReadyError if the engine stopped before that."""
        if len(self._streams) == 1:
            async for event in self._streams[0]:
                if (update := self._update(0, event)) is not None:
                    yield update
        else:
            async for choice, event in _merged(self._streams):
                if (update := self._update(choice, event)) is not None:
                    yield update
        if self.is_cancelled:
            raise AnswerCancelledError("This answer was cancelled by a request to do so.")
        if self._unfinished:
            raise EngineNotReadyError("The server stopped before this answer was complete.")

    def read(self, choice: int, event: TextEvent) -> Update:
        """What new text brings."""
        tokens = event.tokens
        self.log.note_tokens(len(tokens))
        return self._parsed(choice, self._parsers[choice].push(tokens), tokens)

    def _update(self, choice: int, event: Event) -> Update | None:
        """What an event brings; nothing, where it only says that the request was aborted."""
        if isinstance(event, TextEvent):
            return self.read(choice, event)
        if event.reason is FinishReason.ABORT:
            return None
        self._unfinished -= 1
        return self._finish(choice, event)

    def _parsed(self, choice: int, parts: list[Part], tokens: tuple[Token, ...]) -> Update:
        for part in parts:
            if isinstance(part, _CALL_BOUNDS):
                self._called[choice] = isinstance(part, CallEnd)
        return Update(choice, parts, tokens)

    def _finish(self, choice: int, event: FinishEvent) -> Update:
        parser = self._parsers[choice]
        rest = self._parsed(choice, parser.finish(), ())
        reason: Reason = "length" if event.reason is FinishReason.LENGTH else "stop"
        if reason == "stop" and self._called[choice]:
            reason = "tool_calls"
        self.log.note_finish(reason, event, counts_prompt=choice % self.plan.n == 0)
        finish = Finish(reason=reason, event=event, reasoning_tokens=parser.reasoning_tokens)
        return Update(choice, rest.parts, (), finish)


async def _merged(streams: Sequence[EventStream]) -> AsyncIterator[tuple[int, Event]]:
    """The events of all streams as they come, each with its stream's place."""
    iterators = [aiter(stream) for stream in streams]
    waiting = {asyncio.ensure_future(_next(iterator)): place for place, iterator in enumerate(iterators)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                place = waiting.pop(task)
                following = task.result()
                if following is not None:
                    waiting[asyncio.ensure_future(_next(iterators[place]))] = place
                    yield place, following
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)
