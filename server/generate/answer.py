"""One answer on its way: the plan that a request was turned into, and the updates that the engine makes of it.

All routes that generate text go this way: plan (convert.py), admit (generation.py), read updates.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from engine.errors import EngineNotReadyError
from engine.formats.parts import CallBegin, CallEnd, Content, Part
from engine.prompt import Prompt
from engine.request import Event, FinishEvent, FinishReason, Request, TextEvent, Token
from server.errors import AnswerCancelledError, ClientGoneError
from server.generate.message_spans import Spans
from server.logs import RequestLog
from server.served import EventStream

logger = logging.getLogger("octavo.server")

_CALL_BOUNDS = (CallBegin, CallEnd)

Reason = Literal["stop", "length", "tool_calls"]


class Parser(Protocol):
    """What splits one choice's tokens into parts; engine.formats.answer_format.AnswerParser is one."""

    def push(self, tokens: Sequence[Token]) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def reasoning_tokens(self) -> int: ...


class PlainParser:
    """All text is content: completions of raw prompts."""

    reasoning_tokens = 0

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        text = ""  # of one token nearly always, where a join takes longer
        for token in tokens:
            text += token.text
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one HTTP request asks of the engine; nothing of it has been admitted yet."""

    id: str  # of the answer: chatcmpl-..., cmpl-..., msg_..., resp_...
    requests: tuple[Request, ...]  # one a choice, prompt-major: the n answers to the first prompt, then to the next
    n: int = 1  # answers to each prompt
    new_parser: Callable[[], Parser] = PlainParser
    notes: tuple[str, ...] = ()  # names of parameters that turned out to have no effect
    message_spans: Spans = ()  # of a chat that wants to know which message the prefix cache missed
    echo: tuple[str, ...] = ()  # the prompts' texts, where a completion repeats them before its own

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Each prompt, once."""
        return tuple(request.prompt for request in self.requests[:: self.n])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How one choice ended."""

    reason: Reason
    event: FinishEvent
    reasoning_tokens: int


class Update(NamedTuple):
    """What is new of one choice. Tokens are all that were generated, in order; their text is in the parts."""

    choice: int
    parts: Sequence[Part]
    tokens: Sequence[Token] = ()
    finish: Finish | None = None  # on the choice's last update


class Exchange:
    """One admitted plan on its way to its client. Every way out must close it."""

    def __init__(self, plan: Plan, streams: Sequence[EventStream], log: RequestLog) -> None:
        self.plan = plan
        self.log = log
        self.on_close: list[Callable[[], None]] = []
        self._streams = streams
        self._parsers = [plan.new_parser() for _ in streams]
        self._called = [False] * len(streams)  # whether the choice's last call is complete
        self._unfinished = len(streams)
        self._cancelled = False
        self._closed = False

    @property
    def id(self) -> str:
        return self.plan.id

    def cancel(self) -> None:
        """End the answer on somebody else's word; whoever reads it gets an AnswerCancelledError."""
        self._cancelled = True
        self._abort()

    def close(self) -> None:
        """Give the lanes back, whatever the reason, and write the log line."""
        if self._closed:
            return
        self._closed = True
        self._abort()
        self.log.write()
        for callback in self.on_close:
            callback()

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
        if self._cancelled:
            raise AnswerCancelledError("This answer was cancelled by a request to do so.")
        if self._unfinished:
            raise EngineNotReadyError("The server stopped before this answer was complete.")

    def read(self, choice: int, event: TextEvent) -> Update:
        """What new text brings."""
        tokens = event.tokens
        self.log.note_tokens(len(tokens))
        return self._parsed(choice, self._parsers[choice].push(tokens), tokens)

    def note_failure(self, error: Exception) -> None:
        """Take down why there is no answer; our own faults go to the log in full."""
        match error:
            case EngineNotReadyError():
                self.log.end = "stopped"
            case AnswerCancelledError():
                self.log.end = "cancelled"
            case ClientGoneError():
                self.log.end = "disconnected"
            case _:
                self.log.end = "error"
                logger.error("%s failed", self.id, exc_info=error)

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

    def _abort(self) -> None:
        for stream in self._streams:
            stream.abort()


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
