"""The JSON of answers: what a chat completion and a text completion look like, whole and in chunks."""

import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol

from engine.request import FinishEvent

Json = dict[str, object]


class Shape(Protocol):
    """How one API names its objects and spells its choices; None means that this API has no such chunk."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def opening(self) -> Json | None: ...
    def piece(self, text: str) -> Json: ...
    def closing(self, reason: str) -> Json: ...
    def whole(self, text: str, reason: str) -> Json: ...


class ChatShape:
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> Json | None:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def piece(self, text: str) -> Json:
        return self._chunk({"content": text}, None)

    def closing(self, reason: str) -> Json:
        return self._chunk({}, reason)

    def _chunk(self, delta: Json, reason: str | None) -> Json:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}

    def whole(self, text: str, reason: str) -> Json:
        # Strict clients break without the null refusal.
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}


class CompletionShape:
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self) -> Json | None:
        return None

    def piece(self, text: str) -> Json:
        return self._choice(text, None)

    def closing(self, reason: str) -> Json:
        return self._choice("", reason)

    def whole(self, text: str, reason: str) -> Json:
        return self._choice(text, reason)

    def _choice(self, text: str, reason: str | None) -> Json:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


CHAT = ChatShape()
COMPLETION = CompletionShape()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What all chunks of an answer have in common."""

    id: str
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


def new_id(shape: Shape) -> str:
    return shape.id_prefix + secrets.token_hex(16)


def usage(finish: FinishEvent) -> Json:
    return {
        "prompt_tokens": finish.prompt_tokens,
        "completion_tokens": finish.completion_tokens,
        "total_tokens": finish.prompt_tokens + finish.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def timings(finish: FinishEvent) -> Json:
    """Milliseconds and rates under llama-server's names. The first token comes with the prefill, not the decoding."""
    times = finish.timings
    return {
        "queue_ms": round(times.queue_seconds * 1e3, 3),
        "cache_n": 0,
        "prompt_n": finish.prompt_tokens,
        "prompt_ms": round(times.prefill_seconds * 1e3, 3),
        "prompt_per_second": _rate(finish.prompt_tokens, times.prefill_seconds),
        "predicted_n": finish.completion_tokens,
        "predicted_ms": round(times.decode_seconds * 1e3, 3),
        "predicted_per_second": _rate(finish.completion_tokens - 1, times.decode_seconds),
    }


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if count > 0 and seconds > 0 else 0.0
