"""The slow twin of each kernel in plain NumPy, on arrays instead of addresses: what the tests compare the kernels with.

Quantizing and the matmul of quantized weights are defined to the last bit (laws 1 and 2), so their twins take the same
float32 steps in the same order; everything else is the formula in float64, to be compared within a tolerance.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.kv_cache import BLOCK_TOKENS
from kernels.quant import q4_0, q4_1, q5_0, q5_1, q8_0
from kernels.quant.block32 import VALUES, Block32
from kernels.quant.floats import FloatType
from kernels.quant.weight_types import WeightType, dequantize

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_UNPACK = {
    "Q4_0": q4_0.unpack,
    "Q4_1": q4_1.unpack,
    "Q5_0": q5_0.unpack,
    "Q5_1": q5_1.unpack,
    "Q8_0": q8_0.unpack,
}


def exp(x: NDArray[np.floating]) -> Float64:
    """e**x: exactly 0 below -87.3, and arguments above 88 count as 88."""
    x = np.asarray(x, np.float64)
    return np.where(x < np.float32(-87.3), 0.0, np.exp(np.minimum(x, 88.0)))


def fma(a: Float32, b: Float32, c: Float32) -> Float32:
    """a * b + c with one rounding to float32.

    The product is exact in float64. The sum is rounded there to odd, which leaves the second rounding, to float32, as
    if it were the only one. Source: Boldo and Melquiond, Emulation of a FMA and correctly rounded sums (2008).
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinities pass as in any float32 arithmetic
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        even = (total.view(np.int64) & 1) == 0
        neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        rounded: Float32 = np.where((error != 0) & even, neighbour, total).astype(np.float32)
    return rounded


def quantize_activations(x: Float32) -> tuple[NDArray[np.int32], Float32, NDArray[np.bool_]]:
    """float32 [rows, columns] -> (values [rows, blocks, 32], scales [rows, blocks], is fine [rows, blocks]).

    Values are whole numbers within 127, or within 16256 in fine blocks.
    """
    blocks = x.reshape(len(x), -1, VALUES)
    largest = np.abs(blocks).max(axis=2)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        fine = largest * largest > np.float32(0.5) * _energy(blocks)
        scales = largest / np.where(fine, np.float32(16256), np.float32(127))
        inverse = np.where(scales > np.finfo(np.float32).smallest_normal, np.float32(1) / scales, np.float32(0))
    return np.rint(blocks * inverse[..., None]).astype(np.int32), scales, fine


def _energy(blocks: Float32) -> Float32:
    """The sum of squares of 32 values, in the kernels' order (law 3): 16 lanes of two values each, then a tree."""
    low, high = blocks[..., :16], blocks[..., 16:]
    lanes = fma(low, low, high * high)
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def matmul(kind: WeightType, raw: NDArray[np.uint8], x: Float32) -> Float64:
    """Exact products and sums: W as in the file, uint8 [outputs, row_bytes], times x, float32 [rows, columns].

    x is quantized first where the weights are quantized. Returns [rows, outputs].
    """
    activations: Float64 = x.astype(np.float64)
    if isinstance(kind, Block32):
        integers, scales, _ = quantize_activations(x)
        activations = (integers.astype(np.float64) * scales[..., None]).reshape(x.shape)
    return activations @ dequantize(kind, raw).astype(np.float64).T


def matmul_in_order(kind: WeightType, raw: NDArray[np.uint8], x: Float32) -> Float32:
    """Like `matmul`, with the roundings of the kernels: one float32 sum an output, over ascending k or blocks."""
    if isinstance(kind, FloatType):
        return _float_matmul_in_order(dequantize(kind, raw), x)
    values, activation_scales, _ = quantize_activations(x)
    blocks = raw.reshape(len(raw), -1, kind.file_bytes)
    scales, minimums, weights = _UNPACK[kind.name](blocks)
    sums = np.zeros((len(x), len(raw)), np.float32)
    for block in range(blocks.shape[1]):
        signed = weights[:, block].astype(np.int32) - kind.offset
        dots = values[:, block] @ signed.T
        x_scale = activation_scales[:, block, None]
        sums = fma(dots.astype(np.float32), scales[:, block].astype(np.float32) * x_scale, sums)
        if minimums is not None:
            row_sums = x_scale * values[:, block].sum(axis=1, keepdims=True).astype(np.float32)
            sums = fma(minimums[:, block].astype(np.float32), row_sums, sums)
    return sums


def _float_matmul_in_order(weights: Float32, x: Float32) -> Float32:
    sums = np.zeros((len(x), len(weights)), np.float32)
    for k in range(x.shape[1]):
        sums = fma(weights[:, k], x[:, k, None], sums)
    return sums


def rms_norm(x: Float32, weight: Float32, epsilon: float) -> Float64:
    """x / sqrt(mean(x**2) + epsilon) * weight for each row of x, [rows, columns]."""
    wide = x.astype(np.float64)
    normed: Float64 = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + epsilon) * weight
    return normed


def silu_times_up(gate: Float32, up: Float32) -> Float64:
    """gate / (1 + exp(-gate)) * up."""
    wide = gate.astype(np.float64)
    return wide / (1 + exp(-wide)) * up


def rotary(x: Float32, angles: Float64) -> Float64:
    """Turn the neighbours (2i, 2i + 1) of x, [rows, heads, head_dim], by angles[row, i]; the rest stays as it is."""
    turned = x.astype(np.float64)
    even, odd = slice(0, 2 * angles.shape[1], 2), slice(1, 2 * angles.shape[1], 2)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    turned[..., even] = x[..., even] * cosine - x[..., odd] * sine
    turned[..., odd] = x[..., even] * sine + x[..., odd] * cosine
    return turned


def attention(
    query: Float32, keys: Float32, values: Float32, positions: NDArray[np.int64], tables: NDArray[np.int32]
) -> Float64:
    """Softmax attention of each row over the tokens up to its own position; [rows, heads, head_dim].

    query: [rows, heads, head_dim], scaled already; keys and values: blocks as kv_cache.py lays them out;
    tables: [rows, blocks of a sequence], the block table of each row's sequence.
    """
    attended = np.zeros(query.shape)
    for row, position in enumerate(positions):
        used = tables[row][: position // BLOCK_TOKENS + 1]
        for head in range(query.shape[1]):
            kv_head = head * keys.shape[1] // query.shape[1]
            row_keys = np.concatenate([keys[block, kv_head].T for block in used])[: position + 1].astype(np.float64)
            row_values = np.concatenate([values[block, kv_head] for block in used])[: position + 1]
            scores = row_keys @ query[row, head]
            weights = np.exp(scores - scores.max())
            attended[row, head] = weights @ row_values / weights.sum()
    return attended
