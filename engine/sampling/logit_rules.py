"""Changes the logits before a token is drawn: the penalties, biases and bans that a request asks for.

    repetition  x / r where x > 0, else x * r     of every token of the prompt and the answer
    frequency   x - count * f                     of every token of the answer
    presence    x - p                             of every token of the answer
    logit_bias  x + bias; a bias of -100 bans

in f32, in this order, then the bans. A banned token has the logit -inf, which is never drawn.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from engine.api.request import Request
from engine.api.sampling import Sampling

Float32 = NDArray[np.float32]
Ids = NDArray[np.int64]
_BAN = np.float32(-np.inf)
_BAN_BIAS = -100.0


class LogitRules:
    """The rules of one request, and what they need to know of its tokens."""

    def __init__(self, request: Request, end_ids: frozenset[int]) -> None:
        params = request.sampling
        self._penalties = _Penalties(params, request.prompt) if _has_penalties(params) else None
        bias = dict(params.logit_bias)
        self._biased, self._bias = _ids(bias), np.fromiter(bias.values(), np.float32, len(bias))
        self._bias[self._bias <= _BAN_BIAS] = _BAN
        self._allowed = None if params.allowed_tokens is None else _ids(set(params.allowed_tokens))
        self._sequences = [sequence for sequence in params.banned_sequences if sequence]
        longest = max(map(len, self._sequences), default=1)
        self._recent = deque(request.prompt, maxlen=longest - 1)
        self._ends, self._ends_banned_for = _ids(end_ids), request.min_tokens
        self._is_static = bool(self._penalties or bias or self._sequences or self._allowed is not None)

    @property
    def are_needed(self) -> bool:
        """Whether the next token's logits are to be changed at all."""
        return self._is_static or self._ends_banned_for > 0

    def apply(self, logits: Float32, *, may_ban_ends: bool) -> None:
        """Change the logits of the next token. Tokens that would end the answer too early are banned where allowed."""
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN pass; no NaN is ever drawn
            if self._penalties is not None:
                self._penalties.apply(logits)
            logits[self._biased] += self._bias
        if self._allowed is not None:
            kept = logits[self._allowed]
            logits.fill(_BAN)
            logits[self._allowed] = kept
        for *before, last in self._sequences:
            if self._ends_with(before):
                logits[last] = _BAN
        if may_ban_ends and self._ends_banned_for > 0:
            logits[self._ends] = _BAN

    def accept(self, token: int) -> None:
        """Take the next token of the answer."""
        if self._penalties is not None:
            self._penalties.accept(token)
        self._recent.append(token)
        self._ends_banned_for -= 1

    def _ends_with(self, tokens: list[int]) -> bool:
        start = len(self._recent) - len(tokens)
        return start >= 0 and list(islice(self._recent, start, None)) == tokens


class _Penalties:
    """Counts tokens in arrays that grow, so that a step touches those that were seen and no others."""

    def __init__(self, params: Sampling, prompt: Iterable[int]) -> None:
        self._repetition = np.float32(params.repetition_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._place: dict[int, int] = {}
        self._tokens: Ids = np.empty(64, np.int64)
        self._counts: Float32 = np.empty(64, np.float32)  # in the answer; 0 where only the prompt has the token
        if params.repetition_penalty != 1.0:
            for token in prompt:
                self._see(token)

    def apply(self, logits: Float32) -> None:
        seen = len(self._place)
        tokens, counts = self._tokens[:seen], self._counts[:seen]
        values = logits[tokens]
        if self._repetition != 1.0:
            values = np.where(values > 0, values / self._repetition, values * self._repetition)
        logits[tokens] = values - counts * self._frequency - (counts > 0) * self._presence

    def accept(self, token: int) -> None:
        place = self._see(token)  # which may move the arrays
        self._counts[place] += 1

    def _see(self, token: int) -> int:
        """Return the token's place in the arrays; a new one's count is 0."""
        place = self._place.get(token)
        if place is None:
            place = self._place[token] = len(self._place)
            if place == len(self._tokens):
                self._tokens = np.concatenate([self._tokens, np.empty_like(self._tokens)])
                self._counts = np.concatenate([self._counts, np.empty_like(self._counts)])
            self._tokens[place], self._counts[place] = token, 0
        return place


def _has_penalties(params: Sampling) -> bool:
    return bool(params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0)


def _ids(tokens: Iterable[int]) -> Ids:
    return np.array(list(tokens), np.int64)
