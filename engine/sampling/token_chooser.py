"""Chooses the next token of one sequence: its random stream, its rules, its grammar and its thinking budget."""

import os
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.api.constraint import Matcher
from engine.api.request import Request, Thinking
from engine.sampling.logit_rules import LogitRules


class ThinkingBudget:
    """Forces the end of thinking once its budget is used up; thinking that begins again gets the rest of the budget."""

    def __init__(self, thinking: Thinking) -> None:
        assert thinking.end_ids
        self._thinking = thinking
        self._inside = thinking.inside
        self._used = 0
        self._tail: tuple[int, ...] = ()  # the longest end of the thinking that begins end_ids

    @property
    def forced(self) -> int | None:
        """The token that must come next."""
        budget = self._thinking.budget
        if not self._inside or budget is None or self._used < budget:
            return None
        return self._thinking.end_ids[len(self._tail)]

    def accept(self, token: int) -> None:
        """Take the next token of the answer."""
        if not self._inside:
            self._inside = token == self._thinking.start_id
            return
        self._used += 1
        self._tail = self._longest_tail((*self._tail, token))
        if self._tail == self._thinking.end_ids:
            self._inside, self._tail = False, ()

    def _longest_tail(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        end_ids = self._thinking.end_ids
        return next(tokens[cut:] for cut in range(len(tokens) + 1) if tokens[cut:] == end_ids[: len(tokens) - cut])


class TokenChooser:
    """Owns an MT19937 stream: its t-th number is for the t-th drawn token. Belongs to the engine's thread once made."""

    def __init__(self, request: Request, end_ids: frozenset[int] = frozenset()) -> None:
        self.params = request.sampling
        # Setting a stream up takes as long as much else of a request; one that is greedy draws nothing.
        is_greedy = request.sampling.temperature == 0
        self._stream = partial(random_stream, request.sampling.seed, request.choice)
        self._random = None if is_greedy else self._stream()
        rules = LogitRules(request, request.ending_tokens(end_ids))
        self._rules = rules if rules.are_needed else None
        self._thinking = None if request.thinking is None else ThinkingBudget(request.thinking)
        self._constraint = request.constraint
        self._matcher: Matcher | None = None
        # Nothing but the logits and the stream decides, now and later: then there is nothing to be told either.
        self.is_free = self._rules is None and self._thinking is None and self._constraint is None

    def next_uniform(self) -> float:
        """Return the stream's next number in [0, 1)."""
        if self._random is None:
            self._random = self._stream()
        return self._random.random_sample()

    @property
    def limits_logits(self) -> bool:
        """Whether there are rules or a grammar for the next token."""
        return self._constraint is not None or (self._rules is not None and self._rules.are_needed)

    def apply_rules(self, logits: NDArray[np.float32]) -> None:
        """Apply the request's rules to the logits of the next token; an end that its grammar insists on may come."""
        matcher = self._started_matcher()
        if self._rules is not None and self._rules.are_needed:
            self._rules.apply(logits, may_ban_ends=matcher is None or not matcher.is_complete)

    def mask(self) -> NDArray[np.int32] | None:
        """What the grammar allows next, as Matcher.mask has it; None without a grammar."""
        matcher = self._started_matcher()
        return None if matcher is None else matcher.mask()

    def forced(self) -> int | None:
        """The token that must come next because thinking is over its budget, as soon as the grammar allows it."""
        token = None if self._thinking is None else self._thinking.forced
        if token is None or self._constraint is None:
            return token
        mask = self.mask()
        # It is not allowed where a character of the thinking is not complete.
        return token if mask is None or mask[token // 32] >> (token % 32) & 1 else None

    def accept(self, token: int) -> None:
        """Take the next token of the answer."""
        if self._rules is not None:
            self._rules.accept(token)
        if self._thinking is not None:
            self._thinking.accept(token)
        matcher = self._started_matcher()
        if matcher is not None:
            matcher.accept(token)

    def _started_matcher(self) -> Matcher | None:
        if self._matcher is None and self._constraint is not None:
            self._matcher = self._constraint.start()
        return self._matcher


def random_stream(seed: int | None, choice: int) -> np.random.RandomState:
    """Return MT19937 set up (init_by_array) with the seed's 64 bits, two's complement, low half first, and the choice.

    RandomState is frozen by NumPy's compatibility policy (NEP 19): the same seed gives the same numbers in any version.
    """
    bits = int.from_bytes(os.urandom(8), "little") if seed is None else seed & 0xFFFF_FFFF_FFFF_FFFF
    return np.random.RandomState([bits & 0xFFFF_FFFF, bits >> 32, choice])
