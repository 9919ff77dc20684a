"""The scratch of a forward pass: all arrays that ops read and write, allocated once at load."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from engine.emit.kv_group import KvGroupState
from engine.emit.recurrent_state import RecurrentState
from kernels.attention.attention import PartPlan, partial_floats, scratch_floats
from kernels.attention.kv_cache import F16, STEP, KvType
from kernels.machine.memory import zeroed
from kernels.matmul.activations import Activations
from kernels.matmul.gated_matmul import MAX_UNIT_GROUPS, rows_at_once


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


@dataclass(slots=True, kw_only=True)
class StepInputs:
    """One step's record and the arrays that it points to; the runner fills them before each run."""

    record: np.ndarray
    positions: NDArray[np.int64]
    logit_index: NDArray[np.int64]
    final_index: NDArray[np.int64]  # rows whose final hidden state is wanted, `final_count` of them
    final_count: NDArray[np.int64]  # [1]

    @classmethod
    def allocate(cls, capacity: Capacity) -> "StepInputs":
        """Make the arrays and write their addresses into the record."""
        inputs = cls(
            record=np.zeros(1, STEP),
            positions=np.zeros(capacity.max_rows, np.int64),
            logit_index=np.zeros(capacity.max_logit_rows, np.int64),
            final_index=np.zeros(capacity.max_rows, np.int64),
            final_count=np.zeros(1, np.int64),
        )
        for name in ("positions", "logit_index"):
            inputs.record[name] = getattr(inputs, name).ctypes.data
        return inputs

    def address(self, name: str) -> int:
        """Return the address of a field of the record."""
        fields = STEP.fields
        assert fields is not None
        return int(self.record.ctypes.data) + int(fields[name][1])


@dataclass(slots=True, kw_only=True)
class AttentionState:
    """The memory that attention works in, one for all layers, and the groups that share block tables."""

    groups: tuple[KvGroupState, ...]
    scratch: NDArray[np.float32]  # [threads, floats]
    partials: NDArray[np.float32]
    counters: NDArray[np.int64]

    @classmethod
    def allocate(
        cls, capacity: Capacity, heads: int, kv_heads: int, head_dim: int, windows: Sequence[int] = (0,)
    ) -> "AttentionState":
        """Make room for one shape of heads; windows: of the groups, in the order of their tables."""
        group, rows = heads // kv_heads, capacity.max_rows
        partial = partial_floats(group, kv_heads, head_dim, capacity.context_length, rows)
        plan = PartPlan(
            group=group, kv_heads=kv_heads, head_dim=head_dim, threads=capacity.threads, partial_floats=partial
        )
        return cls(
            groups=tuple(
                KvGroupState.allocate(replace(plan, window=window), n_blocks, rows)
                for window, n_blocks in zip(windows, capacity.n_blocks, strict=True)
            ),
            scratch=zeroed((capacity.threads, scratch_floats(group, head_dim)), np.float32),
            partials=zeroed((partial,), np.float32),
            counters=np.zeros(capacity.max_rows * kv_heads, np.int64),
        )

    def group(self, window: int) -> KvGroupState:
        """The group of a window."""
        return next(group for group in self.groups if group.window == window)


@dataclass(slots=True, kw_only=True)
class FeedForwardState:
    """What feed-forward layers keep between gate, up and down; one for all layers."""

    packed: Activations  # the input of down
    scratch: NDArray[np.float32]  # as GATED describes
    counters: NDArray[np.int64]
    rows_at_once: int

    @classmethod
    def allocate(cls, capacity: Capacity, columns: int) -> "FeedForwardState":
        """Make room for layers of up to `columns` columns; pages that no step touches cost no memory."""
        rows, unit = rows_at_once(capacity.crossover), MAX_UNIT_GROUPS * 16
        return cls(
            packed=Activations.allocate(capacity.max_rows, columns, capacity.crossover),
            scratch=zeroed((max(columns + unit, capacity.threads * unit) * 2 * rows,), np.float32),
            counters=np.zeros(-(-columns // 16), np.int64),
            rows_at_once=rows,
        )


@dataclass(slots=True, kw_only=True)
class RunState:
    """Activations of one step, and what is kept of all sequences. A family allocates the parts that its layers use."""

    hidden: NDArray[np.float32]  # [max_rows, hidden], the residual stream
    final: NDArray[np.float32]  # [max_rows, hidden], normalized; the rows that final_index wants
    logits: NDArray[np.float32]  # [max_logit_rows, vocabulary padded to 16]
    likeliest: NDArray[np.int64]  # [max_logit_rows], as LIKELIEST has it
    packed: Activations
    inputs: StepInputs
    attention: AttentionState
    feed_forward: FeedForwardState | None = None  # of dense layers
    recurrent: RecurrentState | None = None  # of Gated DeltaNet layers
    buffers: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # [max_rows, width] each
    keep: list[object] = field(default_factory=list)  # what addresses in the program point to

    def hold(self, array: np.ndarray) -> int:
        """Keep an array alive as long as the program, and return its address."""
        self.keep.append(array)
        return int(array.ctypes.data)
