"""Runs the ops of a Gated DeltaNet layer on NumPy arrays, and reads its formulas in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import address
from kernels.delta.causal_conv import CONV, conv_kernel
from kernels.delta.gated_delta import DELTA, blocks_at_once, delta_kernel, scratch_floats
from kernels.delta.recurrent import HISTORY, LAYER, SPAN, SPANS, TRAIL_ROWS, DeltaShape
from kernels.run.program import Program
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels.ops import TIERS, Float32, run_program

Float64 = NDArray[np.float64]
EPSILON = 1e-6


@dataclass
class Inputs:
    """What the projections of a layer give for the tokens of a sequence."""

    raw: Float32  # [tokens, channels]
    a: Float32  # [tokens, V heads]
    b: Float32

    def __getitem__(self, rows: slice) -> "Inputs":
        return Inputs(self.raw[rows], self.a[rows], self.b[rows])

    def __len__(self) -> int:
        return len(self.raw)


@dataclass
class Rows:
    """The rows of one sequence in a step."""

    inputs: Inputs
    slot: int = 0
    is_first: bool = False
    pending: int = 0
    pending_trail: int = 0
    trail: int = -1


class DeltaLayer:
    """A layer of random weights, with the states of a few sequences."""

    def __init__(self, shape: DeltaShape, *, is_tiled: bool = True, slots: int = 3, seed: int = 0) -> None:
        self.shape, self.is_tiled, self._random = shape, is_tiled, np.random.default_rng(seed)
        self.taps = self._normal(4, shape.channels) * np.float32(0.5)
        self.rates = -np.exp(self._padded(self._random.uniform(-3, 0, shape.value_heads)))
        self.shifts = self._padded(self._random.standard_normal(shape.value_heads) - 1)
        self.states = np.full((slots, shape.slot_floats), np.nan, np.float32)
        self.trails = np.full((slots * 2, TRAIL_ROWS, shape.trail_row_floats), np.nan, np.float32)

    def inputs(self, tokens: int) -> Inputs:
        heads = self.shape.value_heads
        return Inputs(self._normal(tokens, self.shape.channels), *(self._normal(tokens, heads) for _ in range(2)))

    def _normal(self, *shape: int) -> Float32:
        return self._random.standard_normal(shape, np.float32)

    def _padded(self, values: NDArray[np.floating]) -> Float32:
        return np.pad(values, (0, self.shape.gate_stride - len(values))).astype(np.float32)

    def matrices(self, slot: int) -> Float32:
        """The S of each V head, [V heads, key_dim, value_dim]."""
        shape = self.shape
        parts = self.states[slot, : shape.state_floats].reshape(
            shape.value_heads, -1, shape.key_dim, shape.part_columns
        )
        return parts.swapaxes(1, 2).reshape(shape.value_heads, shape.key_dim, shape.value_dim)

    def run(
        self, step: Sequence[Rows], *, tier: str = TIERS[0], threads: int = 1, blocks: int | None = None
    ) -> list[Float32]:
        """Run a step; returns the o of each sequence's rows, [rows, V heads * value_dim].

        blocks: how many the passes take together; None: as many as the tier does.
        """
        shape = self.shape
        counts = [len(rows.inputs) for rows in step]
        total = sum(counts)
        raw = np.concatenate([rows.inputs.raw for rows in step])
        pad = [(0, 0), (0, shape.gate_stride - shape.value_heads)]
        decay = np.pad(np.concatenate([rows.inputs.a for rows in step]), pad)
        beta = np.pad(np.concatenate([rows.inputs.b for rows in step]), pad)
        mixed = np.full_like(raw, np.nan)
        output = np.full((total, shape.value_heads * shape.value_dim), np.nan, np.float32)
        starts = np.cumsum([0, *counts])
        spans = np.array(
            [
                (start, count, rows.slot, rows.is_first, rows.pending, rows.pending_trail, rows.trail)
                for start, count, rows in zip(starts, counts, step, strict=False)
            ],
            SPAN,
        )
        row_spans = np.repeat(np.arange(len(step)), counts)
        record, layer = np.zeros(1, SPANS), np.zeros(1, LAYER)
        record["rows"], record["count"] = total, len(step)
        record["spans"], record["row_spans"] = spans.ctypes.data, row_spans.ctypes.data
        values = {
            "spans": record.ctypes.data,
            "key_heads": shape.key_heads,
            "value_heads": shape.value_heads,
            "key_dim": shape.key_dim,
            "value_dim": shape.value_dim,
            "part_columns": shape.part_columns,
            "channels": shape.channels,
            "is_tiled": self.is_tiled,
            "raw": raw.ctypes.data,
            "mixed": mixed.ctypes.data,
            "decay": decay.ctypes.data,
            "beta": beta.ctypes.data,
            "gate_stride": shape.gate_stride,
            "states": self.states.ctypes.data,
            "slot_bytes": self.states.strides[0],
            "state_at": 0,
            "conv_at": shape.state_floats * 4,
            "trails": self.trails.ctypes.data,
            "trail_bytes": self.trails.strides[0],
            "trail_at": 0,
            "trail_row_bytes": self.trails.strides[1],
        }
        for name in LAYER.names or ():
            layer[name] = values[name]
        zeros, scratch = np.zeros(shape.channels, np.float32), np.zeros((threads, scratch_floats(shape)), np.float32)
        program = Program()
        program.emit(
            CONV,
            address(conv_kernel()),
            layer=layer.ctypes.data,
            taps=self.taps.ctypes.data,
            zeros=zeros.ctypes.data,
            rates=self.rates.ctypes.data,
            shifts=self.shifts.ctypes.data,
            epsilon=EPSILON,
        )
        program.emit(
            DELTA,
            address(delta_kernel(blocks or blocks_at_once(shape, TIERS_BY_NAME[tier].number))),
            layer=layer.ctypes.data,
            output=output.ctypes.data,
            scratch=scratch.ctypes.data,
            scratch_floats=scratch.shape[1],
        )
        run_program(program.finish(), threads)
        return np.split(output, starts[1:-1])

    def reference(self, inputs: Inputs) -> tuple[Float64, Float64]:
        """The o of a whole sequence and its last S, by the formulas."""
        shape, tokens = self.shape, len(inputs)
        raw = np.concatenate([np.zeros((HISTORY, shape.channels)), inputs.raw])
        mixed = sum(self.taps[i].astype(np.float64) * raw[i : i + tokens] for i in range(4))
        mixed = mixed / (1 + np.exp(-mixed))
        keys = shape.key_heads * shape.key_dim
        q, k = (
            part.reshape(tokens, shape.key_heads, shape.key_dim)
            for part in (mixed[:, :keys], mixed[:, keys : 2 * keys])
        )
        v = mixed[:, 2 * keys :].reshape(tokens, shape.value_heads, shape.value_dim)
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + EPSILON) for x in (q, k))
        q = q * shape.key_dim**-0.5
        heads, ratio = np.arange(shape.value_heads), shape.value_heads // shape.key_heads
        shared = heads % shape.key_heads if self.is_tiled else heads // ratio
        q, k = q[:, shared], k[:, shared]
        a, b = inputs.a.astype(np.float64), inputs.b.astype(np.float64)
        decay = np.exp(self.rates[heads] * np.logaddexp(0, a + self.shifts[heads]))
        beta = 1 / (1 + np.exp(-b))
        state = np.zeros((shape.value_heads, shape.key_dim, shape.value_dim))
        output = np.empty((tokens, shape.value_heads, shape.value_dim))
        for t in range(tokens):
            state = state * decay[t][:, None, None]
            error = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t][:, :, None] * error[:, None, :]
            output[t] = np.einsum("hkv,hk->hv", state, q[t])
        return output.reshape(tokens, -1), state
