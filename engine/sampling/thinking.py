"""Keeps an answer's thinking within its budget: where that is used up, the tokens that end it are forced."""

from engine.request import Thinking


class ThinkingBudget:
    """Follows one answer token by token. Thinking that is begun again goes on with what is left of the budget."""

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
