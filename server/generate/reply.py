"""How an answer is told in the words of one API: the protocol, and the two ways of streams.

Chat and text completions tell of choices, in chunks that all carry the same envelope, and end with [DONE]. Messages and
responses tell of one answer, in events that carry their type.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from engine.text.formats.parts import Part
from server.fields.generation import GenerationBody
from server.generate.answer import Context, Finish, Json, Plan, Update
from server.generate.figures import plan_timings, usage
from server.wire.json_text import encoded
from server.wire.wire_error import WireError, openai_words

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


class Reply(Protocol):
    """One answer as it comes to be. What is returned as bytes are the whole frames of a stream, or nothing for now."""

    def start(self) -> bytes:
        """What is told before the first update."""
        ...

    def add(self, update: Update) -> bytes:
        """Take the next update, and tell of it if the answer is streamed."""
        ...

    def ping(self) -> bytes:
        """What keeps a stream alive in which nothing has been told for a while."""
        ...

    def end(self) -> bytes:
        """What follows the last update."""
        ...

    def failed(self, error: WireError) -> bytes:
        """The end of a stream in which something goes wrong after the status line."""
        ...

    def whole(self) -> Json:
        """The complete answer; asked for after the last update."""
        ...


class ChoicesReply(ABC):
    """The replies of OpenAI's completions. What all chunks have in common is encoded once."""

    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, body: GenerationBody, plan: Plan, context: Context, extras: Mapping[str, object]) -> None:
        """extras: what stands beside the choices, in the whole answer or in its first chunk."""
        self._id = plan.id
        self._created = int(time.time())
        self._model = context.model
        self._speed = context.speed
        self._plan = plan
        self._is_streamed = body.stream
        self._include_usage = body.include_usage
        self._extras = extras
        self._finishes: dict[int, Finish] = {}
        self._head = b"data: " + encoded(self._envelope(self.chunk_object))[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if body.include_usage else b"]}\n\n"

    @abstractmethod
    def _chunks(self, update: Update) -> list[Json]:
        """The choices of the chunks that tell of an update."""

    @abstractmethod
    def _keep(self, update: Update) -> None:
        """Take an update for the whole answer."""

    @abstractmethod
    def _whole_choices(self) -> list[Json]:
        """The choices of the whole answer."""

    def start(self) -> bytes:
        return b""

    def add(self, update: Update) -> bytes:
        if update.finish is not None:
            self._finishes[update.choice] = update.finish
        if self._is_streamed:
            return self._frames(update)
        self._keep(update)
        return b""

    def ping(self) -> bytes:
        return PING

    def end(self) -> bytes:
        return DONE

    def failed(self, error: WireError) -> bytes:
        return b"data: " + encoded(openai_words(error)) + b"\n\n" + DONE

    def whole(self) -> Json:
        return {
            **self._envelope(self.whole_object),
            "choices": self._whole_choices(),
            "usage": usage(self._ordered(), self._plan.n),
            **self._timings(),
            **self._extras,
        }

    def _envelope(self, kind: str) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model.id,
            "system_fingerprint": self._model.fingerprint,
        }

    def _frame(self, choice: Json) -> bytes:
        """The chunk that tells of one choice."""
        return self._head + encoded(choice) + self._tail

    def _frames(self, update: Update) -> bytes:
        """The chunks of one update; the last update of all brings the figures."""
        encoded = [self._frame(choice) for choice in self._chunks(update)]
        if self._extras and encoded:
            encoded[0] = _with(encoded[0], self._extras)
            self._extras = {}
        if update.finish is not None and len(self._finishes) == len(self._plan.requests):
            encoded.append(self._usage_chunk() if self._include_usage else _with(encoded.pop(), self._timings()))
        return b"".join(encoded)

    def _usage_chunk(self) -> bytes:
        return _with(self._head + b"]}\n\n", {"usage": usage(self._ordered(), self._plan.n), **self._timings()})

    def _timings(self) -> Json:
        return {"timings": plan_timings(self._plan, self._ordered(), self._speed)}

    def _ordered(self) -> list[Finish]:
        return [self._finishes[choice] for choice in sorted(self._finishes)]


def _with(chunk: bytes, more: Mapping[str, object]) -> bytes:
    return chunk[: -len(b"}\n\n")] + b"," + encoded(more)[1:] + b"\n\n"


class EventReply(ABC):
    """The replies of messages and responses: whole and as events one and the same object makes them."""

    def __init__(self, *, is_streamed: bool) -> None:
        self._is_streamed = is_streamed

    @abstractmethod
    def _begin_events(self) -> list[Json]: ...

    @abstractmethod
    def _part_events(self, part: Part) -> list[Json]: ...

    @abstractmethod
    def _finish_events(self, finish: Finish) -> list[Json]: ...

    @abstractmethod
    def _failure_events(self, error: WireError) -> list[Json]: ...

    @abstractmethod
    def whole(self) -> Json: ...

    def start(self) -> bytes:
        return self._frames(self._begin_events())

    def add(self, update: Update) -> bytes:
        events = [event for part in update.parts for event in self._part_events(part)]
        if update.finish is not None:
            events += self._finish_events(update.finish)
        return self._frames(events)

    def ping(self) -> bytes:
        return PING

    def end(self) -> bytes:
        return b""

    def failed(self, error: WireError) -> bytes:
        return self._frames(self._failure_events(error))

    def _frames(self, events: Sequence[Json]) -> bytes:
        """Events as frames that carry their type twice: in the `event` line and in the data."""
        if not self._is_streamed:
            return b""
        return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encoded(event)) for event in events)
