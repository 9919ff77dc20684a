"""The slow twin of moe_routing.py and moe.py in float64, to be compared within a tolerance."""

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.moe_routing import SIGMOID, SOFTMAX
from kernels.quant.weight_types import WeightType
from tests.kernels.reference import Float32, Float64, matmul, silu_times_up

Experts = tuple[WeightType, NDArray[np.uint8]]  # one type, uint8 [experts, outputs, row bytes] as in the file


def route(
    logits: Float32,
    active: int,
    *,
    scoring: int = SOFTMAX,
    bias: Float32 | None = None,
    renormalize: bool = True,
    scale: float = 1.0,
) -> tuple[NDArray[np.int64], Float64]:
    """Router logits [rows, experts] -> (chosen experts [rows, active] in rank order, their weights)."""
    wide = logits.astype(np.float64)
    scores = 1 / (1 + np.exp(-wide)) if scoring == SIGMOID else _softmax(wide)
    choice = scores if bias is None else scores + bias
    chosen = np.argsort(-choice, axis=1, kind="stable")[:, :active]
    weights = np.take_along_axis(scores, chosen, axis=1)
    if renormalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + 1e-20)
    return chosen, weights * scale


def mixture(
    x: Float32, chosen: NDArray[np.int64], weights: NDArray[np.floating], gate: Experts, up: Experts, down: Experts
) -> Float64:
    """The weighted sum of each row's experts, down(silu(gate x) * up x); [rows, outputs of down]."""
    y = np.zeros((len(x), down[1].shape[1]))
    for row in range(len(x)):
        for expert, weight in zip(chosen[row], weights[row], strict=True):
            gated, raised = (matmul(kind, raw[expert], x[row : row + 1]) for kind, raw in (gate, up))
            hidden = silu_times_up(gated.astype(np.float32), raised.astype(np.float32)).astype(np.float32)
            y[row] += weight * matmul(down[0], down[1][expert], hidden)[0]
    return y


def _softmax(logits: Float64) -> Float64:
    powers: Float64 = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
