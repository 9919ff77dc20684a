"""Runs a model's own draft block: from the final state of a token and the token after it to logits of the next one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.families.family import Draft, Embed
from engine.run.runner_protocol import SequenceRows
from engine.run.step_inputs import fill_step
from kernels.run.team import Team


class DraftRunner:
    """The draft block of a Runner, on its team of threads: neither runs while the other does.

    Its keys and values stand in the blocks of the trunk's first group, at the positions of the final states that they
    come from: a sequence's own block table serves both.
    """

    def __init__(self, draft: Draft, team: Team, embed: Embed, vocab_size: int) -> None:
        self._program, self._state = draft
        self._team, self._embed, self._vocab_size = team, embed, vocab_size
        self._logit_rows = 0  # of the last run

    def run(self, batch: Sequence[SequenceRows], states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [rows that logits are wanted of, vocab_size], a view valid until the next run of the draft.

        states: float32 [rows, width], the final state at each row's position, of the trunk or of the draft itself.
        tokens: of the position after, so that logits are of the position after that.
        """
        tokens = [token for rows in batch for token in rows.tokens]
        assert states.shape == (len(tokens), self._state.hidden.shape[1])
        self._logit_rows = fill_step(self._state, batch)
        self._embed(tokens, self._state.buffers["token"][: len(tokens)])
        self._state.buffers["before"][: len(tokens)] = states
        self._team.run(self._program)
        return self._state.logits[: self._logit_rows, : self._vocab_size]

    @property
    def likeliest(self) -> list[int]:
        """Of each row of the last run's logits, the lowest id of the largest; -1 if no logit is above -inf."""
        return list(self._state.likeliest[: self._logit_rows].tolist())

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's final states, as final_rows asked for: float32 [rows, width]; the next draft continues them.

        A view valid until the next run, the trunk's too.
        """
        return self._state.final[: self._state.inputs.final_count[0]]
