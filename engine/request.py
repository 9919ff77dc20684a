"""What crosses the engine's door: a Request in, events out. All of it is immutable data."""

from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a request ended; the values are those of the OpenAI API, and ABORT never leaves the server."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one token is drawn from the logits. Range checks belong to the protocol types."""

    temperature: float = 1.0  # 0 is greedy: the largest logit, ties to the lowest token id
    top_k: int = 0  # 0 is off
    top_p: float = 1.0  # 1 is off
    min_p: float = 0.0  # 0 is off
    seed: int | None = None  # any int64; None draws one at random


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to continue. Filled by the server's convert step; the engine only reads it."""

    id: str
    prompt: tuple[int, ...]  # token ids, at least one
    max_tokens: int | None = None  # None: up to the end of the context
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()  # the text is cut before the first match
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds spent by one request in each stage, measured by the engine's loop."""

    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvent:
    """Newly decoded text, cut so that no UTF-8 sequence and no possible stop string is split."""

    text: str
    token_ids: tuple[int, ...]  # the tokens generated since the last event (their text may be held back)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """The last event of every request that was not aborted."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    timings: Timings


Event = TextEvent | FinishEvent
