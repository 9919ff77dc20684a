"""What the answers of chat and text completions have in common: who answers, what was used, what it took."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from engine.request import CacheMiss, CacheReport, FinishEvent
from server.errors import WireError
from server.generate.answer import Finish, Plan, Update
from server.generate.message_spans import Spans, message_of
from server.served import ServedModel

Json = dict[str, object]

DONE = b"data: [DONE]\n\n"


class Shape(Protocol):
    """How one API spells the choices of one answer, in chunks or whole; it hears of every update once."""

    whole_object: str
    chunk_object: str

    def chunks(self, update: Update) -> list[Json]: ...

    def add(self, update: Update) -> None: ...

    def whole(self) -> list[Json]: ...

    @property
    def extras(self) -> Mapping[str, object]:
        """What stands beside the choices, in the whole answer or in its first chunk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What all chunks of an answer have in common."""

    id: str
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class Speed:
    """What the model and the machine would allow."""

    bytes_per_step: int  # that one pass over the weights reads
    bandwidth: float | None = None  # of memory, in bytes a second; None: not measured


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(16)


def identity(model: ServedModel, answer_id: str) -> Identity:
    return Identity(id=answer_id, model=model.id, fingerprint=model.fingerprint)


class ChunkWriter:
    """Updates to the events of a stream. What all chunks have in common is encoded once."""

    def __init__(self, identity: Identity, shape: Shape, speed: Speed, plan: Plan, *, include_usage: bool) -> None:
        self._head = b"data: " + orjson.dumps(identity.envelope(shape.chunk_object))[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._shape = shape
        self._speed = speed
        self._plan = plan
        self._include_usage = include_usage
        self._extras = shape.extras
        self._finishes: dict[int, Finish] = {}

    def start(self) -> bytes:
        """Nothing: the first update tells of the beginning."""
        return b""

    def write(self, update: Update) -> bytes:
        """The chunks of one update; the last update of all brings the figures."""
        encoded = [self._head + orjson.dumps(choice) + self._tail for choice in self._shape.chunks(update)]
        if self._extras and encoded:
            encoded[0] = self._with(encoded[0], self._extras)
            self._extras = {}
        if update.finish is not None:
            self._finishes[update.choice] = update.finish
            if len(self._finishes) == len(self._plan.requests):
                encoded.append(
                    self._usage_chunk() if self._include_usage else self._with(encoded.pop(), self._figures())
                )
        return b"".join(encoded)

    def end(self) -> bytes:
        """What follows the last update."""
        return DONE

    def error(self, error: WireError) -> bytes:
        """How OpenAI's streams end when something goes wrong after the status line."""
        return b"data: " + orjson.dumps(error.body()) + b"\n\n" + DONE

    def _with(self, chunk: bytes, more: Mapping[str, object]) -> bytes:
        return chunk[: -len(b"}\n\n")] + b"," + orjson.dumps(more)[1:] + b"\n\n"

    def _usage_chunk(self) -> bytes:
        chunk = self._head + b"]}\n\n"
        return self._with(chunk, {"usage": usage(self._ordered(), self._plan.n), **self._figures()})

    def _figures(self) -> Json:
        return {"timings": _plan_timings(self._plan, self._ordered(), self._speed)}

    def _ordered(self) -> list[Finish]:
        return [self._finishes[choice] for choice in sorted(self._finishes)]


def whole_answer(identity: Identity, shape: Shape, finishes: Sequence[Finish], plan: Plan, speed: Speed) -> Json:
    """The JSON of a complete answer; the shape has heard of all updates."""
    return {
        **identity.envelope(shape.whole_object),
        "choices": shape.whole(),
        "usage": usage(finishes, plan.n),
        "timings": _plan_timings(plan, finishes, speed),
        **shape.extras,
    }


def usage(finishes: Sequence[Finish], n: int = 1) -> Json:
    """Each prompt is counted once, and the answers are added up; `finishes` are in the order of the choices."""
    events = [finish.event for finish in finishes]
    prompt_tokens = sum(event.prompt_tokens for event in events[::n])
    completion_tokens = sum(event.completion_tokens for event in events)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(event.cached_tokens for event in events[::n])},
        "completion_tokens_details": {
            "reasoning_tokens": sum(finish.reasoning_tokens for finish in finishes),
            "accepted_prediction_tokens": sum(event.accepted_prediction_tokens for event in events),
            "rejected_prediction_tokens": sum(event.rejected_prediction_tokens for event in events),
        },
    }


def timings(*events: FinishEvent, speed: Speed | None = None) -> Json:
    """Milliseconds and rates under llama-server's names. The first token comes with the prefill, not the decoding.

    Of several choices, which run side by side: the longest times, and the tokens of all.
    """
    decode_seconds = max(event.timings.decode_seconds for event in events)
    prefill_seconds = max(event.timings.prefill_seconds for event in events)
    computed = sum(event.prompt_tokens - event.cached_tokens for event in events)
    decoded = sum(max(event.completion_tokens - 1, 0) for event in events)
    figures: Json = {
        "queue_ms": _milliseconds(max(event.timings.queue_seconds for event in events)),
        "cache_n": sum(event.cached_tokens for event in events),
        "prompt_n": computed,
        "prompt_ms": _milliseconds(prefill_seconds),
        "prompt_per_second": _rate(computed, prefill_seconds),
        "predicted_n": sum(event.completion_tokens for event in events),
        "predicted_ms": _milliseconds(decode_seconds),
        "predicted_per_second": _rate(decoded, decode_seconds),
        "draft_n": sum(event.timings.drafted_tokens for event in events),
        "draft_n_accepted": sum(event.timings.accepted_tokens for event in events),
        "lanes": round(max(event.timings.mean_lanes for event in events), 2),  # that shared each pass over the weights
    }
    return figures if speed is None else figures | _against_the_machine(events, decode_seconds, speed)


def _plan_timings(plan: Plan, finishes: Sequence[Finish], speed: Speed) -> Json:
    """Of all choices; what the prefix cache gave is told of the first prompt, where the request has asked for it."""
    figures = timings(*(finish.event for finish in finishes), speed=speed)
    report = finishes[0].event.cache
    return figures if report is None else figures | {"cache": _cache(report, plan.message_spans)}


def _cache(report: CacheReport, spans: Spans) -> Json:
    differs = report.miss is CacheMiss.DIFFERS
    return {
        "cached_tokens": report.cached_tokens,
        "matched_tokens": report.matched_tokens,
        "miss": report.miss,
        "message": message_of(report.matched_tokens, spans) if differs else None,
    }


def _against_the_machine(events: Sequence[FinishEvent], seconds: float, speed: Speed) -> Json:
    """What the longest of the choices read of the weights, one pass a token, and how much of the machine that is.

    A draft that was right is a token without a pass of its own.
    """
    passes = max(event.completion_tokens - 1 - event.timings.accepted_tokens for event in events)
    read = _rate(passes * speed.bytes_per_step, seconds)
    figures: Json = {"bytes_per_step": speed.bytes_per_step}
    return (
        figures if speed.bandwidth is None else figures | {"bandwidth_percent": round(100 * read / speed.bandwidth, 1)}
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if count > 0 and seconds > 0 else 0.0
