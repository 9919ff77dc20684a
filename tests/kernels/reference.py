"""The slow twin of each kernel in plain NumPy, on arrays instead of addresses: what the tests compare the kernels with.

Quantizing and the matmul of quantized weights are defined to the last bit (laws 1 and 2), so their twins take the same
float32 steps in the same order; everything else is the formula in float64, to be compared within a tolerance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.attention.kv_cache import BLOCK_TOKENS, CHUNK, F16, SCALED, KvType
from kernels.attention.rotary import HALVES, NEIGHBOURS
from kernels.matmul.activations import FINE_SHARE
from kernels.quant.block32 import VALUES, Block32
from kernels.quant.block256 import VALUES as VALUES256
from kernels.quant.block256 import Block256
from kernels.quant.weight_types import FloatType, WeightType

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


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


@dataclass(frozen=True)
class Quantized:
    """Quantized rows: whole numbers within 127, or within 16256 in fine blocks."""

    values: NDArray[np.int32]  # [rows, blocks, 32 or 256]
    scales: Float32  # [rows, blocks]
    fine: NDArray[np.bool_]  # [rows, blocks]

    def planes(self) -> list[tuple[NDArray[np.int32], Float32]]:
        """(numbers, their scales) of the two planes; the second is zero in plain blocks."""
        high = np.where(self.fine[..., None], (self.values + 64) >> 7, self.values)
        low = np.where(self.fine[..., None], self.values - 128 * high, 0)
        scale = np.where(self.fine, self.scales * np.float32(128), self.scales)
        return [(high, scale), (low, scale * np.float32(1 / 128))]


def quantize_activations(x: Float32, block: int = VALUES) -> Quantized:
    """Quantize float32 [rows, columns] by blocks of 32 or 256 values."""
    blocks = x.reshape(len(x), -1, block)
    largest = np.abs(blocks).max(axis=2)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        fine = largest * largest > FINE_SHARE * _energy(blocks)
        scales = largest / np.where(fine, np.float32(16256), np.float32(127))
        inverse = np.where(scales > np.finfo(np.float32).smallest_normal, np.float32(1) / scales, np.float32(0))
        values = np.rint(blocks * inverse[..., None]).astype(np.int32)
    return Quantized(values, scales, fine)


def _energy(blocks: Float32) -> Float32:
    """The sum of squares of a block, in the kernels' order (law 3): 16 lanes by fma, then a tree."""
    chunks = blocks.reshape(*blocks.shape[:2], -1, 16)
    if chunks.shape[2] == 2:
        low, high = chunks[:, :, 0], chunks[:, :, 1]
        lanes = fma(low, low, high * high)
    else:
        lanes = np.zeros_like(chunks[:, :, 0])
        for chunk in range(chunks.shape[2]):
            lanes = fma(chunks[:, :, chunk], chunks[:, :, chunk], lanes)
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def matmul(kind: WeightType, raw: NDArray[np.uint8], x: Float32) -> Float64:
    """Exact products and sums: W as in the file, uint8 [outputs, row_bytes], times x, float32 [rows, columns].

    x is quantized first where the weights are quantized. Returns [rows, outputs].
    """
    activations: Float64 = x.astype(np.float64)
    if not isinstance(kind, FloatType):
        quantized = quantize_activations(x, kind.values)
        activations = (quantized.values.astype(np.float64) * quantized.scales[..., None]).reshape(x.shape)
    return activations @ kind.dequantize(raw).astype(np.float64).T


def matmul_in_order(kind: WeightType, raw: NDArray[np.uint8], x: Float32) -> Float32:
    """Like `matmul`, with the roundings of the kernels: one float32 sum an output, over ascending k or blocks."""
    with np.errstate(over="ignore", under="ignore"):  # infinities pass as in any float32 arithmetic
        if isinstance(kind, FloatType):
            return _float_matmul_in_order(kind.dequantize(raw), x)
        return _matmul256(kind, raw, x) if isinstance(kind, Block256) else _matmul32(kind, raw, x)


def _matmul32(kind: Block32, raw: NDArray[np.uint8], x: Float32) -> Float32:
    stored_scales, minimums, stored = kind.unpack(raw)
    weights, scales = kind.whole_numbers(stored), kind.float_scales(stored_scales)
    quantized = quantize_activations(x)
    (high, high_scales), (low, low_scales) = quantized.planes()
    sums = np.zeros((len(x), len(raw)), np.float32)
    for block in range(weights.shape[1]):
        dots = (high[:, block] @ weights[:, block].T).astype(np.float32)
        sums = fma(dots, scales[:, block] * high_scales[:, block, None], sums)
        if minimums is not None:
            totals = quantized.values[:, block].sum(axis=1, keepdims=True).astype(np.float32)
            row_sums = quantized.scales[:, block, None] * totals
            sums = fma(minimums[:, block].astype(np.float32), row_sums, sums)
        dots = (low[:, block] @ weights[:, block].T).astype(np.float32)
        added = fma(dots, scales[:, block] * low_scales[:, block, None], sums)
        sums = np.where(quantized.fine[:, block, None], added, sums)
    return sums


def _matmul256(kind: Block256, raw: NDArray[np.uint8], x: Float32) -> Float32:
    numbers, quantized = kind.unpack(raw), quantize_activations(x, VALUES256)
    weights = kind.whole_numbers(numbers.weights) * np.repeat(numbers.scales, kind.sub_values, 2).astype(np.int32)
    d = numbers.d.astype(np.float32)
    sums = np.zeros((len(x), len(raw)), np.float32)
    for block in range(d.shape[1]):
        for plane, (values, scales) in enumerate(quantized.planes()):
            x_scales = scales[:, block, None]
            added = fma((values[:, block] @ weights[:, block].T).astype(np.float32), d[:, block] * x_scales, sums)
            if numbers.d_minimum is not None and numbers.minimums is not None:
                row_sums = values[:, block].reshape(len(x), -1, kind.sub_values).sum(axis=2)
                totals = row_sums @ numbers.minimums[:, block].astype(np.int32).T
                factors = numbers.d_minimum[:, block].astype(np.float32) * x_scales
                added = fma(totals.astype(np.float32), -factors, added)
            sums = np.where(quantized.fine[:, block, None], added, sums) if plane else added
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


def gelu_times_up(gate: Float32, up: Float32) -> Float64:
    """gate / 2 * (1 + tanh(u)) * up with u = sqrt(2 / pi) * (gate + 0.044715 * gate**3)."""
    wide = gate.astype(np.float64)
    return wide / (1 + exp(-2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) * up


def rotary(x: Float32, angles: Float64, pairing: int = NEIGHBOURS) -> Float64:
    """Turn the pairs of x, [rows, heads, head_dim], by angles[row, i]; the rest stays as it is.

    Pair i is (2i, 2i + 1), or (i, i + pairs) with HALVES.
    """
    turned, pairs = x.astype(np.float64), angles.shape[1]
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    if pairing == HALVES:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    turned[..., first] = x[..., first] * cosine - x[..., second] * sine
    turned[..., second] = x[..., first] * sine + x[..., second] * cosine
    return turned


def kv_elements(kv_type: KvType, x: Float32) -> tuple[NDArray[np.generic], Float32]:
    """What a cache holds of x, [..., head_dim]: elements of the same shape, and scales [..., groups] (q8_0 only)."""
    if not kv_type.scaled:
        with np.errstate(over="ignore"):
            return x.astype(np.float16 if kv_type is F16 else np.float32), np.zeros((*x.shape[:-1], 0), np.float32)
    groups = -(-x.shape[-1] // SCALED)
    padded = np.zeros((*x.shape[:-1], groups * SCALED), np.float32)
    padded[..., : x.shape[-1]] = x
    grouped = padded.reshape(*x.shape[:-1], groups, SCALED)
    scales = np.abs(grouped).max(axis=-1) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        inverse = np.where(scales > np.finfo(np.float32).smallest_normal, np.float32(1) / scales, np.float32(0))
        integers = np.rint(grouped * inverse[..., None]).astype(np.int8).reshape(padded.shape)
    return integers[..., : x.shape[-1]], scales


def kv_rounded(kv_type: KvType, x: Float32) -> Float32:
    """x, [..., head_dim], as it comes back from a cache."""
    elements, scales = kv_elements(kv_type, x)
    rounded: Float32 = elements.astype(np.float32)
    if kv_type.scaled:
        with np.errstate(invalid="ignore"):
            rounded = rounded * np.repeat(scales, SCALED, axis=-1)[..., : x.shape[-1]]
    return rounded


def pack_keys(kv_type: KvType, keys: Float32) -> NDArray[np.uint8]:
    """[blocks, KV heads, 64, head_dim] -> blocks as kv_cache.py lays keys out, [blocks, KV heads, bytes]."""
    elements, scales = kv_elements(kv_type, keys)
    chunks = elements.reshape(*keys.shape[:2], -1, CHUNK, keys.shape[-1]).swapaxes(-1, -2)
    return _joined(chunks, scales)


def pack_values(kv_type: KvType, values: Float32) -> NDArray[np.uint8]:
    """[blocks, KV heads, 64, head_dim] -> blocks as kv_cache.py lays values out, [blocks, KV heads, bytes]."""
    return _joined(*kv_elements(kv_type, values))


def _joined(elements: NDArray[np.generic], scales: Float32) -> NDArray[np.uint8]:
    parts = [elements.reshape(*scales.shape[:2], -1), scales.swapaxes(-1, -2).reshape(*scales.shape[:2], -1)]
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=-1)


def attention(
    query: Float32,
    keys: Float32,
    values: Float32,
    positions: NDArray[np.int64],
    tables: NDArray[np.int32],
    window: int = 0,
) -> Float64:
    """Softmax attention of each row over the tokens up to its own position; [rows, heads, head_dim].

    query: [rows, heads, head_dim], scaled already; keys and values: [blocks, KV heads, 64, head_dim];
    tables: [rows, blocks of a sequence], the block table of each row's sequence; a window of n > 0: the last n tokens.
    """
    attended = np.zeros(query.shape)
    for row, position in enumerate(positions):
        used = tables[row][: position // BLOCK_TOKENS + 1]
        first = max(0, position + 1 - window) if window else 0
        for head in range(query.shape[1]):
            kv_head = head * keys.shape[1] // query.shape[1]
            row_keys = np.concatenate([keys[block, kv_head] for block in used])[first : position + 1]
            row_values = np.concatenate([values[block, kv_head] for block in used])[first : position + 1]
            scores = row_keys.astype(np.float64) @ query[row, head]
            weights = np.exp(scores - scores.max())
            attended[row, head] = weights @ row_values / weights.sum()
    return attended
