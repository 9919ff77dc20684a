"""What one step will compute, as data."""

from dataclasses import dataclass, field

from engine.run.sequence import TokenSequence
from engine.scheduling.pace import Chunk


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """The next `count` tokens of a sequence go into the step, and after them tokens that are only guessed."""

    sequence: TokenSequence
    count: int
    drafts: tuple[int, ...] = ()
    wants_states: bool = False  # final hidden states of all rows, for a draft block that follows them

    @property
    def wants_logits(self) -> bool:
        """True if these rows reach the end of what is known, so that the next token can be chosen."""
        return self.count == self.sequence.pending and self.sequence.pooler is None

    @property
    def every_row(self) -> bool:
        """True if these rows are of a prompt that is scored token by token, or if drafts are to be judged."""
        return self.sequence.is_scored or bool(self.drafts)

    @property
    def rows(self) -> int:
        return self.count + len(self.drafts)

    @property
    def logit_rows(self) -> int:
        """How many rows of logits the step computes for them."""
        return self.rows if self.every_row else int(self.wants_logits)

    @property
    def is_decode(self) -> bool:
        """True if all but the newest token of an answer was computed before."""
        return self.sequence.new_tokens > 0 and self.sequence.pending == 1

    @property
    def final_rows(self) -> range:
        """Which of them final hidden states are wanted of, for an embedding or a draft."""
        pooler = self.sequence.pooler
        if pooler is not None:
            return pooler.wanted(self.sequence.computed, self.count)
        return range(self.rows if self.wants_states else 0)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The rows of a step, what is known of them before it runs, and what went wrong while it was made.

    Counts are of the moment of planning: the sequences go on, the plan does not.
    """

    rows: tuple[PlannedRows, ...]
    preempted: int = 0  # sequences that gave up their memory for it
    faults: tuple[tuple[TokenSequence, Exception], ...] = ()  # sequences that could not even be planned
    total_rows: int = field(init=False)
    decode_rows: int = field(init=False)  # one for each sequence that decodes
    draft_rows: int = field(init=False)
    single_rows: int = field(init=False)  # of sequences that had one token to be fed: they decode, or soon will
    chunks: tuple[Chunk, ...] = field(init=False)  # of the others

    def __post_init__(self) -> None:
        single = [rows for rows in self.rows if rows.sequence.pending == 1]
        chunks = [Chunk(rows.sequence.computed, rows.count) for rows in self.rows if rows.sequence.pending > 1]
        draft_rows = sum([len(rows.drafts) for rows in self.rows])
        values = {
            "total_rows": sum([rows.count for rows in self.rows]) + draft_rows,
            "decode_rows": sum([rows.sequence.new_tokens > 0 for rows in single]),
            "draft_rows": draft_rows,
            "single_rows": len(single),
            "chunks": tuple(chunks),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
