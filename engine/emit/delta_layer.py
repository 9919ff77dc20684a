"""Emits Gated DeltaNet over one layer's tensors of a GGUF file: the ops of kernels/delta/.

    q, k, v = heads of silu(conv(W_qkv n))                      q and k of length 1, q times key_dim**-0.5
    decay = exp(A * softplus(W_a n + dt)),  beta = sigmoid(W_b n)
    S = decay * S;  d = beta * (v - S^T k);  S = S + k d^T;  o = S^T q
    x += W_o (headnorm(o) * silu(W_z n))

Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks (2024). A tensor ssm_a holds A, which is -exp(A_log).
"""

from collections.abc import Sequence

import numpy as np

from engine.emit.emitter import Emitter
from engine.emit.recurrent_state import RecurrentState
from engine.emit.run_state import RunState
from engine.weights.load import WeightLoader
from kernels.build.jit import Kernel, address
from kernels.delta.causal_conv import CONV, conv_kernel
from kernels.delta.gated_delta import DELTA, blocks_at_once, delta_kernel
from kernels.delta.head_gate import head_gate_kernel
from kernels.delta.recurrent import TAPS, DeltaShape
from kernels.run.program import Program

_HEAD_EPSILON = 1e-6  # of the lengths of q and k


def delta_kernels(shape: DeltaShape, tier: int) -> Sequence[Kernel]:
    """The kernels of these layers."""
    return (conv_kernel(), head_gate_kernel(), delta_kernel(blocks_at_once(shape, tier)))


class DeltaLayers:
    """Emits the layers of one model into its program, and each one's catching up into the program that settles states.

    Their projections are read from buffers of the RunState, which get them here.
    """

    def __init__(self, emit: Emitter, weights: WeightLoader, state: RunState, tier: int) -> None:
        assert state.recurrent is not None
        self._emit, self._weights, self._state = emit, weights, state
        self._recurrent: RecurrentState = state.recurrent
        self._kernel = address(delta_kernel(blocks_at_once(self._recurrent.shape, tier)))
        self._settle = Program()
        shape, rows = self._recurrent.shape, len(state.hidden)
        inner = shape.value_heads * shape.value_dim
        self._zeros = state.hold(np.zeros(shape.channels, np.float32))
        for name in ("raw", "decay", "beta"):
            state.buffers[name] = getattr(self._recurrent, name)
        for name in ("z", "recurred"):
            state.buffers[name] = np.zeros((rows, inner), np.float32)

    def emit(self, name: str, epsilon: float, *, is_tiled: bool) -> None:
        """Add a layer ("blk.3") of the packed input n to the residual stream; is_tiled: as LAYER has it."""
        shape, emit = self._recurrent.shape, self._emit
        inner = shape.value_heads * shape.value_dim
        emit.matmul(f"{name}.attn_qkv.weight", "raw", shape.channels, barrier=False)
        emit.matmul(f"{name}.attn_gate.weight", "z", inner, barrier=False)
        emit.matmul(f"{name}.ssm_alpha.weight", "decay", shape.value_heads, barrier=False)
        emit.matmul(f"{name}.ssm_beta.weight", "beta", shape.value_heads)
        layer = self._state.hold(self._recurrent.add_layer(is_tiled=is_tiled))
        taps = self._weights.table(f"{name}.ssm_conv1d.weight", shape.channels, TAPS)
        emit.program.emit(
            CONV,
            address(conv_kernel()),
            f"conv {name}",
            layer=layer,
            taps=self._state.hold(np.ascontiguousarray(taps.T)),
            zeros=self._zeros,
            rates=self._heads(f"{name}.ssm_a"),
            shifts=self._heads(f"{name}.ssm_dt.bias"),
            epsilon=_HEAD_EPSILON,
        )
        for program in (emit.program, self._settle):
            program.emit(
                DELTA,
                self._kernel,
                f"delta {name}",
                layer=layer,
                output=self._state.buffers["recurred"].ctypes.data,
                scratch=self._recurrent.scratch.ctypes.data,
                scratch_floats=self._recurrent.scratch.shape[1],
            )
        weight = f"{name}.ssm_norm.weight"
        emit.gate_heads("recurred", "z", shape.value_heads, shape.value_dim, weight=weight, epsilon=epsilon)
        emit.matmul(f"{name}.ssm_out.weight", None, self._state.hidden.shape[1])

    def finish(self) -> None:
        """Note that there are no more layers."""
        self._recurrent.settle = self._settle.finish()

    def _heads(self, name: str) -> int:
        """The address of a number for each V head, with zeros up to a whole vector."""
        shape = self._recurrent.shape
        values = self._weights.vector(name, shape.value_heads)
        return self._state.hold(np.pad(values, (0, shape.gate_stride - shape.value_heads)))
