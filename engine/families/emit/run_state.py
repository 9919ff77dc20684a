"""The scratch of a forward pass: all arrays that ops read and write, allocated once at load."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engine.families.emit.attention_state import AttentionState
from engine.run.runner_protocol import SequenceRows
from kernels.attention.kv_cache import F16, STEP, KvType
from kernels.machine.memory import zeroed
from kernels.matmul.activations import Activations
from kernels.matmul.gated_matmul import MAX_UNIT_GROUPS, rows_at_once
from kernels.run.program import Program

Float32 = NDArray[np.float32]
_LANES = 16  # floats of a vector: rows are padded to whole ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How large a step, and how much memory of keys and values, a program is built for."""

    max_rows: int
    max_logit_rows: int
    n_blocks: tuple[int, ...]  # of each group of attention layers
    context_length: int  # tokens of the longest sequence
    threads: int
    crossover: int  # rows from which matmuls take tiles of 16, as Activations has it
    kv_type: KvType = F16
    state_slots: int = 0  # of recurrent state


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of floats that ops read or write: where they are, how wide they are, and how many of them a step has."""

    name: str  # as the names of ops say it
    array: Float32  # [places, at least `width`]
    width: int  # values of a row; what follows them in the array is padding
    count: int  # address of an int64: the number of rows in this step
    index: int = 0  # address of an int64 for each row: its place in the array; 0: rows stand in order

    @property
    def address(self) -> int:
        """Where the first place begins."""
        return int(self.array.ctypes.data)

    @property
    def stride(self) -> int:
        """Floats from one place to the next."""
        return self.array.strides[0] // self.array.itemsize

    def columns(self, first: int, width: int) -> "Rows":
        """A view of some columns."""
        return replace(self, array=self.array[:, first : first + width], width=width)


@dataclass(slots=True, kw_only=True)
class StepInputs:
    """One step's record and the arrays that it points to; the runner fills them before each run."""

    record: np.ndarray  # STEP
    positions: NDArray[np.int64]
    logit_index: NDArray[np.int64]
    final_index: NDArray[np.int64]  # rows whose final hidden state is needed, `final_count` of them
    final_count: NDArray[np.int64]  # [1]

    @classmethod
    def allocate(cls, capacity: Capacity) -> Self:
        """Make the arrays and write their addresses into the record."""
        inputs = cls(
            record=np.zeros(1, STEP),
            positions=np.zeros(capacity.max_rows, np.int64),
            logit_index=np.zeros(capacity.max_logit_rows, np.int64),
            final_index=np.zeros(capacity.max_rows, np.int64),
            final_count=np.zeros(1, np.int64),
        )
        inputs.record["positions"] = inputs.positions.ctypes.data
        inputs.record["logit_index"] = inputs.logit_index.ctypes.data
        return inputs

    def address(self, name: str) -> int:
        """Return the address of a field of the record."""
        fields = STEP.fields
        assert fields is not None
        return int(self.record.ctypes.data) + int(fields[name][1])


@dataclass(slots=True, kw_only=True)
class FeedForwardState:
    """What feed-forward layers keep between gate, up and down; one for all layers."""

    packed: Activations  # the input of down
    scratch: Float32  # as GATED describes
    counters: NDArray[np.int64]
    rows_at_once: int

    @classmethod
    def allocate(cls, capacity: Capacity, columns: int) -> Self:
        """Make room for layers of up to `columns` columns; pages that no step touches cost no memory."""
        rows, unit = rows_at_once(capacity.crossover), MAX_UNIT_GROUPS * 16
        return cls(
            packed=Activations.allocate(capacity.max_rows, columns, capacity.crossover),
            scratch=zeroed((max(columns + unit, capacity.threads * unit) * 2 * rows,), np.float32),
            counters=np.zeros(-(-columns // 16), np.int64),
            rows_at_once=rows,
        )


class SlotState(Protocol):
    """What layers of one kind keep of each sequence beside keys and values: a slot of fixed size.

    All kinds of a model number their slots alike. Rows that begin at position 0 begin with an empty slot, whatever it
    holds. A step whose rows may be taken back leaves its slots as they were until it is known which rows stay.
    """

    @property
    def slots(self) -> int:
        """How many slots there are."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, in all layers of this kind."""

    def begin(self, batch: Sequence[SequenceRows]) -> None:
        """Tell the ops about the rows of a step, which must then run."""

    def rewind(self, slot: int, rows: int) -> None:
        """Take back all but the first `rows` rows of the slot's last step, which kept its states."""

    def settle(self, slot: int) -> Program | None:
        """What must run before the slot holds the sequence's own state; None where it does already."""

    def copy(self, source: int, target: int) -> None:
        """Copy a settled slot over another, bit by bit."""

    def read(self, slot: int) -> bytes:
        """What a settled slot holds, slot_bytes of it."""

    def write(self, slot: int, data: bytes) -> None:
        """Overwrite a slot with what `read` gave."""


@dataclass(slots=True, kw_only=True)
class RunState:
    """Activations of one step, and what is kept of all sequences. A family allocates the parts that its layers use."""

    hidden: Float32  # [max_rows, hidden], the residual stream
    final: Float32  # [max_rows, hidden], normalized; the rows that final_index wants
    logits: Float32  # [max_logit_rows, vocabulary padded to 16]
    likeliest: NDArray[np.int64]  # [max_logit_rows], as LIKELIEST has it
    norm_scratch: Float32  # [threads, widest input of a norm]
    packed: Activations
    inputs: StepInputs
    attention: AttentionState
    feed_forward: FeedForwardState | None = None  # of dense layers and shared experts
    slots: tuple[SlotState, ...] = ()  # of recurrent layers
    keep: list[object] = field(default_factory=list)  # what addresses in the program point to

    def hold(self, array: np.ndarray) -> int:
        """Keep an array alive as long as the program, and return its address."""
        self.keep.append(array)
        return int(array.ctypes.data)

    def rows_of(self, name: str, array: Float32, width: int | None = None) -> Rows:
        """An array [max_rows, at least `width`] as the rows of a step; it is kept alive."""
        self.hold(array)
        return Rows(name, array, array.shape[1] if width is None else width, self.inputs.address("rows"))

    def new_rows(self, name: str, width: int) -> Rows:
        """Make a zeroed buffer for the rows of a step; pages that no step touches cost no memory."""
        return self.rows_of(name, np.zeros((len(self.hidden), -(-width // _LANES) * _LANES), np.float32), width)
