"""What crosses the engine's door: a Request in, events out. All of it is immutable data."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from engine.api.constraint import Constraint
from engine.api.prompt import Prompt
from engine.api.sampling import Sampling


class FinishReason(StrEnum):
    """Why a request ended; the values are those of the OpenAI API, and ABORT never leaves the server."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Where an answer's thinking begins and ends, as tokens. Thinking ends at its budget by force."""

    inside: bool  # the prompt has opened it already
    start_id: int | None  # the token that opens it; None where that is not one token
    end_ids: tuple[int, ...]  # what closes it; more than one where that is not one token
    budget: int | None = None  # tokens; None: no bound


class Pooling(StrEnum):
    """Which final hidden states of a text make its embedding."""

    MEAN = "mean"  # of all tokens
    CLS = "cls"  # the first token's
    LAST = "last"  # the last token's


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to continue. Filled by the server's convert step; the engine only reads it."""

    id: str
    prompt: Prompt  # at least one token
    choice: int = 0  # which of the answers to one prompt this is; each has a random stream of its own
    max_tokens: int | None = None  # None: up to the end of the context; 0 only to score or embed the prompt
    min_tokens: int = 0  # before these, neither an end token nor a stop string ends the answer
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()  # the text is cut before the first match
    stop_tokens: frozenset[int] = frozenset()
    include_stop: bool = False  # the text keeps the stop string, or the stop token's text
    ignore_eos: bool = False
    skip_special_tokens: bool = True  # else control tokens are written out as text
    marks: frozenset[int] = frozenset()  # tokens that are handed out by themselves with their name as text (see Token)
    logprobs: int | None = None  # how many alternatives of each token to report; None: no logprobs at all
    prompt_logprobs: int | None = None  # the same for the prompt's tokens
    constraint: Constraint | None = None  # what the answer's tokens must match
    thinking: Thinking | None = None
    pooling: Pooling | None = None  # with max_tokens 0: not an answer, but the prompt's embedding is wanted
    max_seconds: float | None = None  # of wall time since submission; then the answer ends with LENGTH
    priority: int = 0  # the lower is admitted first; waiting makes up for it
    caller: bytes = b""  # whose key asked: callers take turns, and none sees what another has in the prefix cache
    cache_salt: str = ""  # a caller's own division of the prefix cache
    caches_prompt: bool = True  # else all of its division is dropped when the last request of it ends
    explains_cache: bool = False  # FinishEvent.cache is wanted
    prediction: tuple[int, ...] = ()  # tokens that the answer will probably hold, in order

    def ending_tokens(self, end_ids: frozenset[int]) -> frozenset[int]:
        """The tokens that end the answer, given those that end a turn, which a grammar's end needs in any case."""
        return self.stop_tokens if self.ignore_eos and self.constraint is None else self.stop_tokens | end_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What one request took, measured by the engine's loop."""

    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    mean_lanes: float = 1.0  # sequences that shared its decode steps, on average
    drafted_tokens: int = 0  # that were guessed and tried, because it seemed to save time, and ...
    accepted_tokens: int = 0  # ... those of them that came


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithms of the full softmax of the model's own logits, before penalties and temperature."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest (token, logprob), descending, ties to the lower id


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token, and the text that became safe to send with it: no character, no possible stop is split.

    A mark is one of Request.marks: its text is the token's name, and the text before it is complete.
    """

    id: int
    text: str
    is_mark: bool = False
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class TextEvent:
    """The tokens since the last event; the last of them has text, is a mark, or ends the answer."""

    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """What these tokens say."""
        return "".join(token.text for token in self.tokens)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(token.id for token in self.tokens)


class CacheMiss(StrEnum):
    """Why the prefix cache did not hold more of a prompt."""

    WHOLE = "whole"  # all that could be taken was: the last token is always computed
    COLD = "cold"  # no prompt of this caller and salt began like this one
    DIFFERS = "differs"  # the nearest prompt has another token there
    EVICTED = "evicted"  # it was there, and was dropped to make room
    OFF = "off"  # the request needs its whole prompt computed


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What the prefix cache gave for one prompt, and why not more."""

    cached_tokens: int
    matched_tokens: int  # leading tokens that equal the nearest earlier prompt's: the next one differs
    miss: CacheMiss


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """The last event of every request that was not aborted."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    timings: Timings
    cached_tokens: int = 0  # of the prompt, taken from the cache
    cache: CacheReport | None = None  # where the request asked for it
    preemptions: int = 0  # how often it had to give its memory to others and was computed again
    accepted_prediction_tokens: int = 0  # of Request.prediction, that came where the answer had led to, and ...
    rejected_prediction_tokens: int = 0  # ... the rest of it: whatever was tried
    stop: str | int | None = None  # the stop string or stop token that ended it; "deadline" where the time did
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()  # of each prompt token where asked for; None of the first
    embedding: NDArray[np.float32] | None = None  # where the request asked for it


Event = TextEvent | FinishEvent
