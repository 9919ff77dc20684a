"""Guesses of a model's own draft block, which goes on from the trunk's final states."""

from collections.abc import Mapping

import numpy as np

from engine.run.runner_protocol import DraftModel, SequenceRows
from engine.run.sequence import Sequence
from engine.run.step import Computed


class ModelDrafter:
    """Follows every row of the trunk, so that the block has keys and values for all positions before a draft's."""

    def __init__(self, draft: DraftModel, block_tokens: int) -> None:
        self._draft = draft
        self._block_tokens = block_tokens

    def room(self, sequence: Sequence) -> int:
        """How many tokens can be drafted: the rows after the first stand where the sequence has blocks already."""
        return min(len(table) for table in sequence.tables) * self._block_tokens - sequence.computed + 1

    def follow(self, steps: list[Computed], wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        """Take in a step's rows, as far as they are right, and draft so many tokens of some of its sequences."""
        alive = [step for step in steps if step.sequence.tables and step.sequence.computed > step.position]
        if not alive:
            return {}
        batch = [_rows(step, wanted.get(step.sequence, 0) > 0) for step in alive]
        states = [step.final[: len(rows.tokens)] for step, rows in zip(alive, batch, strict=True)]
        self._draft.run(batch, np.concatenate(states))
        asking = [step.sequence for step, rows in zip(alive, batch, strict=True) if rows.wants_logits]
        drafts: dict[Sequence, tuple[int, ...]] = {}
        while asking:
            for sequence, token in zip(asking, self._draft.likeliest, strict=True):
                drafts[sequence] = (
                    *drafts.get(sequence, ()),
                    max(token, 0),
                )  # logits that are no numbers draft nothing good
            going = [place for place, sequence in enumerate(asking) if len(drafts[sequence]) < wanted[sequence]]
            asking = [asking[place] for place in going]
            if asking:
                self._draft.run([_next_row(s, drafts[s]) for s in asking], self._draft.final[going])
        return drafts


def _rows(step: Computed, is_last_wanted: bool) -> SequenceRows:
    """The token after each row of a step that was right."""
    sequence = step.sequence
    tokens = sequence.tokens[step.position + 1 : sequence.computed + 1]
    final = range(len(tokens) - 1, len(tokens)) if is_last_wanted else range(0)
    return SequenceRows(tokens, step.position, sequence.tables, is_last_wanted, final_rows=final)


def _next_row(sequence: Sequence, drafts: tuple[int, ...]) -> SequenceRows:
    position = sequence.computed - 1 + len(drafts)
    return SequenceRows(drafts[-1:], position, sequence.tables, True, final_rows=range(1))
