"""Gated DeltaNet: emits its layers, and keeps their states of all sequences; the ops are those of kernels/delta/.

    q, k, v = heads of silu(conv(W_qkv n))                      q and k of length 1, q times key_dim**-0.5
    decay = exp(A * softplus(W_a n + dt)),  beta = sigmoid(W_b n)
    S = decay * S;  d = beta * (v - S^T k);  S = S + k d^T;  o = S^T q
    x += W_o (headnorm(o) * silu(W_z n))

Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks (2024). Tensors have their names in GGUF, where a tensor ssm_a
holds A, which is -exp(A_log).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.families.emit.emitter import Emitter, Packed, gate_heads
from engine.families.emit.matmul import matmul
from engine.run.runner_protocol import MAX_KEPT_ROWS, SequenceRows
from kernels.build.jit import Kernel
from kernels.delta.causal_conv import CONV, conv_kernel
from kernels.delta.gated_delta import DELTA, blocks_at_once, delta_kernel, scratch_floats
from kernels.delta.head_gate import head_gate_kernel
from kernels.delta.recurrent import LAYER, SPAN, SPANS, TAPS, TRAIL_ROWS, DeltaShape
from kernels.machine.memory import zeroed
from kernels.run.program import Program

_HEAD_EPSILON = 1e-6  # of the lengths of q and k


def delta_kernels(shape: DeltaShape, tier: int) -> Sequence[Kernel]:
    """The kernels of these layers."""
    return (conv_kernel(), head_gate_kernel(), delta_kernel(blocks_at_once(shape, tier)))


@dataclass(slots=True, kw_only=True)
class DeltaState:
    """The states of all sequences, a SlotState in the layout of kernels/delta/recurrent.py.

    Layers are added in order, and share all but their places in a slot. After a step that keeps its states, the slot
    holds the state before it, and `pending` rows of a trail lead from there to the sequence's state.
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
    settling: Program = field(default_factory=Program)  # does what is pending, and no rows

    @classmethod
    def allocate(cls, shape: DeltaShape, layers: int, slots: int, max_rows: int, threads: int) -> Self:
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
        state_at = number * self.states.strides[1]
        fields = {
            "spans": self.record.ctypes.data,
            "key_heads": shape.key_heads,
            "value_heads": shape.value_heads,
            "key_dim": shape.key_dim,
            "value_dim": shape.value_dim,
            "part_columns": shape.part_columns,
            "channels": shape.channels,
            "is_tiled": is_tiled,
            "raw": self.raw.ctypes.data,
            "mixed": self.mixed.ctypes.data,
            "decay": self.decay.ctypes.data,
            "beta": self.beta.ctypes.data,
            "gate_stride": shape.gate_stride,
            "states": self.states.ctypes.data,
            "slot_bytes": self.states.strides[0],
            "state_at": state_at,
            "conv_at": state_at + shape.state_floats * 4,
            "trails": self.trails.ctypes.data,
            "trail_bytes": self.trails.strides[1],
            "trail_at": number * self.trails.strides[2],
            "trail_row_bytes": self.trails.strides[3],
        }
        self.layers.append(np.array([tuple(fields[name] for name in LAYER.names or ())], LAYER))
        return self.layers[-1]

    @property
    def slots(self) -> int:
        return len(self.states)

    @property
    def slot_bytes(self) -> int:
        return int(self.states[0].nbytes)

    def begin(self, batch: Sequence[SequenceRows]) -> None:
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

    def rewind(self, slot: int, rows: int) -> None:
        assert 0 <= rows <= self.pending[slot]
        self.pending[slot] = rows

    def settle(self, slot: int) -> Program | None:
        if self.pending[slot] == 0:
            return None
        self.spans[0] = (0, 0, slot, 0, self.pending[slot], 2 * slot + self.turn[slot], -1)
        self.record["rows"], self.record["count"] = 0, 1
        self.pending[slot] = 0
        return self.settling

    def copy(self, source: int, target: int) -> None:
        self.states[target], self.pending[target] = self.states[source], 0

    def read(self, slot: int) -> bytes:
        data: bytes = self.states[slot].tobytes()
        return data

    def write(self, slot: int, data: bytes) -> None:
        self.states[slot], self.pending[slot] = np.frombuffer(data, np.float32).reshape(self.states[slot].shape), 0


class DeltaLayers:
    """Emits the layers of one model into its program, and what each has pending into the program that settles slots."""

    def __init__(self, emit: Emitter, states: DeltaState) -> None:
        self._emit, self._states = emit, states
        state, shape = emit.state, states.shape
        inner = shape.value_heads * shape.value_dim
        self._kernel = delta_kernel(blocks_at_once(shape, emit.tier))
        self._zeros = state.hold(np.zeros(shape.channels, np.float32))
        self._raw = state.rows_of("raw", states.raw)
        self._decay = state.rows_of("decay", states.decay, shape.value_heads)
        self._beta = state.rows_of("beta", states.beta, shape.value_heads)
        self._z = state.new_rows("z", inner)
        self._recurred = state.new_rows("recurred", inner)

    def emit(self, packed: Packed, name: str, epsilon: float, *, is_tiled: bool) -> None:
        """Add layer `name` ("blk.3") of the packed input n to the residual stream; is_tiled: as LAYER has it."""
        shape, emit = self._states.shape, self._emit
        matmul(emit, packed, f"{name}.attn_qkv.weight", self._raw, barrier=False)
        matmul(emit, packed, f"{name}.attn_gate.weight", self._z, barrier=False)
        matmul(emit, packed, f"{name}.ssm_alpha.weight", self._decay, barrier=False)
        matmul(emit, packed, f"{name}.ssm_beta.weight", self._beta)
        layer = emit.state.hold(self._states.add_layer(is_tiled=is_tiled))
        taps = emit.weights.table(f"{name}.ssm_conv1d.weight", shape.channels, TAPS)
        emit.op(
            CONV,
            conv_kernel(),
            f"conv {name}",
            layer=layer,
            taps=emit.state.hold(np.ascontiguousarray(taps.T)),
            zeros=self._zeros,
            rates=self._heads(f"{name}.ssm_a"),
            shifts=self._heads(f"{name}.ssm_dt.bias"),
            epsilon=_HEAD_EPSILON,
        )
        for program in (emit.program, self._states.settling):
            program.emit(
                DELTA,
                self._kernel.address,
                f"delta {name}",
                layer=layer,
                output=self._recurred.address,
                scratch=self._states.scratch.ctypes.data,
                scratch_floats=self._states.scratch.shape[1],
            )
        weight = f"{name}.ssm_norm.weight"
        gated = gate_heads(emit, self._recurred, self._z, shape.value_dim, weight=weight, epsilon=epsilon)
        matmul(emit, gated, f"{name}.ssm_out.weight", emit.stream, add=True)

    def finish(self) -> None:
        """Note that there are no more layers."""
        self._states.settling.finish()

    def _heads(self, name: str) -> int:
        """The address of a number for each V head, with zeros up to a whole vector."""
        shape = self._states.shape
        values = self._emit.weights.vector(name, shape.value_heads)
        return self._emit.state.hold(np.pad(values, (0, shape.gate_stride - shape.value_heads)))
