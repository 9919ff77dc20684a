"""The states of all sequences in the Gated DeltaNet layers of a model, and what a step's rows do with them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.run.runner_protocol import MAX_KEPT_ROWS, SequenceRows
from kernels.delta.gated_delta import scratch_floats
from kernels.delta.recurrent import LAYER, SPAN, SPANS, TRAIL_ROWS, DeltaShape
from kernels.machine.memory import zeroed
from kernels.run.program import Program


@dataclass(slots=True, kw_only=True)
class RecurrentState:
    """Memory in the layout of kernels/delta/; layers are added in order, and share all but their places in it.

    After a step that keeps its states, the slot holds the state before it, and `pending` rows of a trail lead from
    there to the sequence's state.
    """

    shape: DeltaShape
    states: NDArray[np.float32]  # [slots, layers, slot_floats]
    trails: NDArray[np.float32]  # [slots, 2, layers, TRAIL_ROWS, trail_row_floats]
    raw: NDArray[np.float32]  # [max_rows, channels]
    mixed: NDArray[np.float32]  # [max_rows, channels]
    decay: NDArray[np.float32]  # [max_rows, gate_stride]
    beta: NDArray[np.float32]  # [max_rows, gate_stride]
    scratch: NDArray[np.float32]  # [threads, floats]
    record: np.ndarray  # SPANS
    spans: np.ndarray  # SPAN [max_rows]
    row_spans: NDArray[np.int64]  # [max_rows]
    pending: NDArray[np.int64]  # [slots]
    turn: NDArray[np.int64]  # [slots]: which of its two trails a slot's pending rows are in
    layers: list[np.ndarray] = field(default_factory=list)  # LAYER of each
    settle: Program | None = None  # does what is pending, and no rows

    @classmethod
    def allocate(cls, shape: DeltaShape, layers: int, slots: int, max_rows: int, threads: int) -> "RecurrentState":
        """Make room; pages that no step touches cost no memory."""
        state = cls(
            shape=shape,
            states=zeroed((slots, layers, shape.slot_floats), np.float32),
            trails=zeroed((slots, 2, layers, TRAIL_ROWS, shape.trail_row_floats), np.float32),
            raw=zeroed((max_rows, shape.channels), np.float32),
            mixed=zeroed((max_rows, shape.channels), np.float32),
            decay=zeroed((max_rows, shape.gate_stride), np.float32),
            beta=zeroed((max_rows, shape.gate_stride), np.float32),
            scratch=zeroed((threads, scratch_floats(shape)), np.float32),
            record=np.zeros(1, SPANS),
            spans=np.zeros(max_rows, SPAN),
            row_spans=np.zeros(max_rows, np.int64),
            pending=np.zeros(slots, np.int64),
            turn=np.zeros(slots, np.int64),
        )
        state.record["spans"], state.record["row_spans"] = state.spans.ctypes.data, state.row_spans.ctypes.data
        return state

    def add_layer(self, *, is_tiled: bool) -> np.ndarray:
        """Take the next layer's place in slots and trails; returns its LAYER record."""
        number, shape = len(self.layers), self.shape
        state_at, row_bytes = number * self.states.strides[1], self.trails.strides[3]
        layer = np.zeros(1, LAYER)
        for name in ("raw", "mixed", "decay", "beta", "states", "trails"):
            layer[name] = getattr(self, name).ctypes.data
        for name in ("key_heads", "value_heads", "key_dim", "value_dim", "part_columns", "channels", "gate_stride"):
            layer[name] = getattr(shape, name)
        layer["spans"], layer["is_tiled"] = self.record.ctypes.data, is_tiled
        layer["slot_bytes"], layer["state_at"] = self.states.strides[0], state_at
        layer["conv_at"] = state_at + shape.state_floats * 4
        layer["trail_bytes"], layer["trail_at"] = self.trails.strides[1], number * self.trails.strides[2]
        layer["trail_row_bytes"] = row_bytes
        self.layers.append(layer)
        return layer

    def begin(self, batch: Sequence[SequenceRows]) -> None:
        """Tell the ops about the rows of a step, which must then run."""
        row = 0
        spans = []
        for number, rows in enumerate(batch):
            slot, count = rows.state_slot, len(rows.tokens)
            is_first = rows.position == 0
            pending = 0 if is_first else self.pending[slot]
            trail = -1
            if rows.keep_states:
                assert count <= MAX_KEPT_ROWS <= TRAIL_ROWS
                trail = 2 * slot + 1 - self.turn[slot]
            spans.append((row, count, slot, is_first, pending, 2 * slot + self.turn[slot], trail))
            self.row_spans[row : row + count] = number
            self.pending[slot] = count if rows.keep_states else 0
            if rows.keep_states:
                self.turn[slot] = 1 - self.turn[slot]
            row += count
        self.spans[: len(spans)] = spans
        self.record["rows"], self.record["count"] = row, len(spans)

    def begin_settling(self, slot: int) -> bool:
        """Prepare a run of `settle` for a slot; False where nothing is pending."""
        if self.pending[slot] == 0:
            return False
        self.spans[0] = (0, 0, slot, 0, self.pending[slot], 2 * slot + self.turn[slot], -1)
        self.record["rows"], self.record["count"] = 0, 1
        self.pending[slot] = 0
        return True

    def rewind(self, slot: int, rows: int) -> None:
        """Take back all but the first `rows` rows of the slot's last step, which kept its states."""
        assert 0 <= rows <= self.pending[slot]
        self.pending[slot] = rows

    def write(self, slot: int, data: NDArray[np.float32]) -> None:
        """Overwrite a slot, float32 [layers, slot_floats]."""
        self.states[slot], self.pending[slot] = data, 0
