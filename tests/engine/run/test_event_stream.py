"""One stream: order, joining, ending, leaving."""

import asyncio

import pytest

from engine.api.request import Event, FinishEvent, FinishReason, TextEvent, Timings, Token
from engine.errors import EngineFaultError
from engine.run.event_stream import EventStream

FINISH = FinishEvent(
    reason=FinishReason.STOP,
    prompt_tokens=1,
    completion_tokens=2,
    timings=Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0),
)


class Reader:
    """A stream, and how often it asked for an abort."""

    def __init__(self) -> None:
        self.aborts = 0
        self.stream = EventStream(self._abort)

    def _abort(self) -> None:
        self.aborts += 1


def text(piece: str) -> TextEvent:
    return TextEvent((Token(len(piece), piece),))


async def test_a_fast_reader_gets_each_event() -> None:
    stream = Reader().stream
    for event in (text("a"), text("bc"), FINISH):
        stream.deliver(event)
        assert await anext(stream) == event
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_slow_reader_gets_joined_text_and_loses_nothing() -> None:
    stream = Reader().stream
    for event in (text("a"), text("bc"), FINISH):
        stream.deliver(event)
    assert [event async for event in stream] == [TextEvent((Token(1, "a"), Token(2, "bc"))), FINISH]


async def test_a_waiting_reader_wakes_for_an_event() -> None:
    stream = Reader().stream
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.deliver(text("a"))
    assert await reading == text("a")


async def test_a_fault_comes_after_the_text_before_it() -> None:
    stream = Reader().stream
    stream.deliver(text("a"))
    stream.deliver(EngineFaultError("broken"))
    assert await anext(stream) == text("a")
    with pytest.raises(EngineFaultError, match="broken"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_leaving_early_aborts_once_and_drops_the_rest() -> None:
    reader = Reader()
    async with reader.stream as stream:
        stream.deliver(text("a"))
    await stream.aclose()
    stream.abort()
    stream.deliver(text("b"))
    stream.deliver(FINISH)
    assert [event async for event in stream] == []
    assert reader.aborts == 1


async def test_leaving_after_the_end_asks_for_no_abort() -> None:
    read, unread = Reader(), Reader()
    read.stream.deliver(FINISH)
    assert [event async for event in read.stream] == [FINISH]
    unread.stream.deliver(FINISH)
    await read.stream.aclose()
    await unread.stream.aclose()
    assert read.aborts == unread.aborts == 0


async def test_an_abort_wakes_a_reader_that_waits() -> None:
    reader = Reader()
    reading = asyncio.ensure_future(anext(reader.stream, None))
    await asyncio.sleep(0)
    reader.stream.abort()
    assert await reading is None


async def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing() -> None:
    stream = Reader().stream
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    stream.deliver(text("a"))  # before the reader hears of it
    await asyncio.gather(waiting, return_exceptions=True)
    stream.deliver(text("b"))
    assert await anext(stream) == TextEvent((*text("a").tokens, *text("b").tokens))


class Listener:
    """Takes texts or refuses them."""

    def __init__(self) -> None:
        self.heard: list[TextEvent] = []
        self.is_free = True

    def __call__(self, event: TextEvent) -> bool:
        if self.is_free:
            self.heard.append(event)
        return self.is_free


async def reading_of(stream: EventStream) -> "asyncio.Future[Event]":
    """A reader that waits already."""
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    return reading


async def test_a_listener_hears_texts_in_the_place_of_a_reader_who_waits_and_the_reader_the_end() -> None:
    stream, listener = Reader().stream, Listener()
    stream.listen(listener)
    reading = await reading_of(stream)
    stream.deliver(text("a"))
    stream.deliver(text("bc"))
    await asyncio.sleep(0)
    assert listener.heard == [text("a"), text("bc")] and not reading.done()
    stream.deliver(FINISH)
    assert await reading == FINISH


async def test_what_a_listener_refuses_is_the_readers_and_so_is_all_that_follows_until_he_waits_again() -> None:
    stream, listener = Reader().stream, Listener()
    stream.listen(listener)
    stream.deliver(text("a"))  # nobody waits: it would come before what the reader is busy with
    assert await anext(stream) == text("a")
    reading = await reading_of(stream)
    listener.is_free = False
    stream.deliver(text("b"))
    listener.is_free = True
    stream.deliver(text("cd"))
    assert await reading == TextEvent((*text("b").tokens, *text("cd").tokens))
    assert listener.heard == []
    await reading_of(stream)
    stream.deliver(text("e"))
    assert listener.heard == [text("e")]


async def test_a_listeners_fault_aborts_the_request_once_and_is_raised_to_the_reader_alone() -> None:
    def fail(event: TextEvent) -> bool:
        raise ZeroDivisionError("a bug")

    reader = Reader()
    stream = reader.stream
    stream.listen(fail)
    reading = await reading_of(stream)
    for event in (text("a"), text("b"), FINISH):
        stream.deliver(event)
    with pytest.raises(ZeroDivisionError):
        await reading
    stream.abort()
    assert [event async for event in stream] == []
    assert reader.aborts == 1


async def test_after_an_abort_a_listener_hears_nothing() -> None:
    stream, listener = Reader().stream, Listener()
    stream.listen(listener)
    reading = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)
    stream.abort()
    stream.deliver(text("a"))
    assert await reading is None
    assert listener.heard == []
