"""A token from a row of logits: the largest, or a draw after temperature, top-k, min-p and top-p; no full sort.

A token's weight is an integer, w_i = floor(2^42 * exp((x_i - max x) / temperature)) with exp in f32. Sums of integers
are exact, so top-p and the draw do not depend on the order of adding, and the reference in the tests agrees to the last
token; a token below 2^-42 of the likeliest is never drawn. NaN counts as -inf.

    top-k   the k largest logits, ties to the lower id
    min-p   w_i >= min_p * 2^42 (the likeliest token weighs 2^42)
    top-p   the shortest prefix of (weight descending, id ascending) that weighs at least top_p of what is left
    draw    the first id, ascending, where the running sum exceeds uniform * sum

Bytes moved for a vocabulary of V: 4 V to find the largest logit, 12 V more for the weights where top-k is off.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import c_function, njit_inline
from kernels.machine.memory import address_of
from kernels.run.program import array_at, record_at

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 128  # tokens that share one maximum
WEIGHT_BITS = 42
DIGIT_BITS = 11
WEIGHT_DIGITS, KEY_DIGITS = 4, 3  # of 11 bits: a weight has 43 bits, a key 32
MAX_VOCABULARY = 1 << 20  # the sum of all weights stays below 2^63

_ONE = 1 << WEIGHT_BITS
_MANTISSA_BITS = 24
_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two f32 parts: the first has 9 significant bits, so its product with a small integer is exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440054690583e-4)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / math.factorial(n)) for n in range(8))
_HALF = np.float32(0.5)
_MANTISSA = np.float32(1 << _MANTISSA_BITS)
_WEIGHTLESS = np.float32(-42.0)  # exp of this is 2^-60.6
_LOWEST_KEY = np.int32(-0x7FFFFFFF)  # of a NaN
_INFINITY_KEY = np.int32(0x7F800000)
_KEY_OFFSET = np.int64(1 << 31)  # makes a key unsigned


class ScratchArrays(NamedTuple):
    """Arrays that the samplers write, for one vocabulary size V."""

    identity: Array  # int32 [V]: 0, 1, 2, ... (never written)
    ids: Array  # int32 [V]: tokens that are left, ascending
    scores: Array  # float32 [V]: their logits
    values: Array  # int64 [V]: their keys, then their weights
    block_values: Array  # int64 [ceil(V / BLOCK)]: each block's largest value
    mantissas: Array  # int32 [BLOCK]
    shifts: Array  # int32 [BLOCK]
    histogram: Array  # int64 [2^DIGIT_BITS]
    results: Array  # float64 [2]


_SCRATCH = np.dtype([("vocabulary", "i8"), *((name, "u8") for name in ScratchArrays._fields)])


class SamplingScratch(NamedTuple):
    """What one sampling thread has for its own; compiled code finds the arrays by their addresses in the record."""

    ids: Array  # as in `arrays`
    scores: Array
    arrays: ScratchArrays
    record: Array  # _SCRATCH [1]
    address: int  # of the record


def sampling_scratch(vocab_size: int) -> SamplingScratch:
    """Allocate the arrays of one sampling thread."""
    assert 0 < vocab_size <= MAX_VOCABULARY
    arrays = ScratchArrays(
        identity=np.arange(vocab_size, dtype=np.int32),
        ids=np.empty(vocab_size, np.int32),
        scores=np.empty(vocab_size, np.float32),
        values=np.empty(vocab_size, np.int64),
        block_values=np.empty(-(-vocab_size // BLOCK), np.int64),
        mantissas=np.empty(BLOCK, np.int32),
        shifts=np.empty(BLOCK, np.int32),
        histogram=np.empty(1 << DIGIT_BITS, np.int64),
        results=np.zeros(2),
    )
    addresses = (address_of(array) for array in arrays)
    record = np.array([(vocab_size, *addresses)], _SCRATCH)
    return SamplingScratch(arrays.ids, arrays.scores, arrays, record, address_of(record))


@njit_inline
def arrays_of(scratch: Any) -> Any:
    """The arrays of a scratch record at an address."""
    record = record_at(scratch, _SCRATCH)
    size = record.vocabulary
    return ScratchArrays(
        array_at(np.uintp(record.identity), size, np.int32),
        array_at(np.uintp(record.ids), size, np.int32),
        array_at(np.uintp(record.scores), size, np.float32),
        array_at(np.uintp(record.values), size, np.int64),
        array_at(np.uintp(record.block_values), -(-size // BLOCK), np.int64),
        array_at(np.uintp(record.mantissas), BLOCK, np.int32),
        array_at(np.uintp(record.shifts), BLOCK, np.int32),
        array_at(np.uintp(record.histogram), 1 << DIGIT_BITS, np.int64),
        array_at(np.uintp(record.results), 2, np.float64),
    )


@njit_inline
def _key(bits: Any) -> Any:
    """Map the bits of an f32 to an int32 of the same order: -0 equals +0, and NaN is below -inf."""
    magnitude = np.int32(bits & np.int32(0x7FFFFFFF))
    key = magnitude if bits >= 0 else np.int32(-magnitude)
    return key if magnitude <= _INFINITY_KEY else _LOWEST_KEY


@njit_inline
def _exp_parts(exponent: Any) -> Any:
    """Return m, s with m * 2^(-24 - s) = exp(exponent), f32 <= 0: 2^-s * exp(r), |r| <= ln(2) / 2, Taylor to r^7."""
    z = exponent if exponent > _WEIGHTLESS else _WEIGHTLESS  # a NaN too weighs nothing
    k = np.int32(z * _LOG2_E - _HALF)
    whole = np.float32(k)
    r = (z - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = _C7 * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r + _C1
    p = p * r + _C0
    return np.int32(p * _MANTISSA), np.int32(-k)


@njit_inline
def _weight(mantissa: Any, shift: Any) -> Any:
    """Return floor(2^42 * exp(exponent)) for what `_exp_parts` returns."""
    return (np.int64(mantissa) << (WEIGHT_BITS - _MANTISSA_BITS)) >> np.int64(shift)


@njit_inline
def _largest_key(bits: Any) -> Any:
    largest = _LOWEST_KEY
    for i in range(bits.size):
        key = _key(bits[i])
        largest = key if key > largest else largest
    return largest


@njit_inline
def block_keys(logits: Any, block_values: Any) -> Any:
    """Write the largest key of each block; return the lowest id of the largest key of all."""
    bits = logits.view(np.int32)
    for block in range(block_values.size):
        block_values[block] = _largest_key(bits[block * BLOCK : (block + 1) * BLOCK])
    block = int(np.argmax(block_values))
    token = block * BLOCK
    while _key(bits[token]) != block_values[block]:
        token += 1
    return token


def argmax(logits: NDArray[np.float32]) -> int:
    """Return the lowest id of the largest logit of float32 [V]; -1 if no logit is above -inf."""
    return int(_argmax.call(address_of(logits), logits.size))


@c_function("int64(uintp, int64)")
def _argmax(logits_at: Any, size: Any) -> Any:
    return largest_of(logits_at, size)


@njit_inline
def largest_of(logits_at: Any, size: Any) -> Any:
    """Return what `argmax` does, of float32 [size] at an address."""
    logits = array_at(logits_at, size, np.float32)
    bits = logits.view(np.int32)
    largest, where = _LOWEST_KEY, 0
    for start in range(0, size, BLOCK):
        key = _largest_key(bits[start : start + BLOCK])
        if key > largest:
            largest, where = key, start
    while _key(bits[where]) != largest:
        where += 1
    return where if logits[where] > -np.inf else -1


@njit_inline
def _select(values: Any, n: Any, need: Any, weighted: Any, histogram: Any) -> Any:
    """Find the value at which a running sum in descending order reaches `need`, digit by digit of the values.

    The sum is of the values themselves if `weighted`, else of ones. Returns the value, and what its equals must give.
    """
    prefix = np.int64(0)
    digits = WEIGHT_DIGITS if weighted else KEY_DIGITS
    for digit in range(digits):
        shift = DIGIT_BITS * (digits - 1 - digit)
        histogram[:] = 0
        for i in range(n):
            if values[i] >> (shift + DIGIT_BITS) == prefix:
                histogram[(values[i] >> shift) & (histogram.size - 1)] += values[i] if weighted else 1
        bucket = histogram.size - 1
        while histogram[bucket] < need:
            need -= histogram[bucket]
            bucket -= 1
        prefix = (prefix << DIGIT_BITS) | bucket
    return prefix, need


@njit_inline
def keep_top_k(logits: Any, top_k: Any, scratch: Any) -> Any:
    """Write ids and scores of the k largest logits, ids ascending.

    At least k logits reach the k-th largest block maximum, so only blocks that reach it are looked into.
    """
    bits, blocks, values, ids = logits.view(np.int32), scratch.block_values, scratch.values, scratch.ids
    blocks += _KEY_OFFSET
    bound = np.int64(0)
    if top_k < blocks.size:
        bound, _ = _select(blocks, blocks.size, top_k, False, scratch.histogram)
    n = 0
    for block in range(blocks.size):
        if blocks[block] >= bound:
            for i in range(block * BLOCK, min((block + 1) * BLOCK, bits.size)):
                key = np.int64(_key(bits[i])) + _KEY_OFFSET
                if key >= bound:
                    ids[n], values[n] = i, key
                    n += 1
    last, ties = _select(values, n, top_k, False, scratch.histogram)
    kept = 0
    for i in range(n):
        if values[i] > last or (values[i] == last and ties > 0):
            ties -= values[i] == last
            scratch.scores[kept] = logits[ids[i]]
            ids[kept] = ids[i]
            kept += 1


@njit_inline
def weigh(scores: Any, peak: Any, temperature: Any, min_p: Any, scratch: Any) -> Any:
    """Write the weights of scores [n], 0 below min-p, and each block's largest; return their sum."""
    inverse = np.float32(min(1.0 / temperature, 1e38))
    least = np.int64(math.ceil(min_p * _ONE))
    mantissas, shifts = scratch.mantissas, scratch.shifts
    total = np.int64(0)
    for block in range(-(-scores.size // BLOCK)):
        part = scores[block * BLOCK : (block + 1) * BLOCK]
        weights = scratch.values[block * BLOCK : (block + 1) * BLOCK]
        for i in range(part.size):
            mantissas[i], shifts[i] = _exp_parts((part[i] - peak) * inverse)
        largest = np.int64(0)
        for i in range(part.size):
            weight = _weight(mantissas[i], shifts[i])
            weight = weight if weight >= least else np.int64(0)
            weights[i] = weight
            largest = weight if weight > largest else largest
            total += weight
        scratch.block_values[block] = largest
    return total


@njit_inline
def _top_p(tokens: Any, total: Any, top_p: Any, scratch: Any) -> Any:
    """Keep ids and weights of the nucleus in scratch.ids and scratch.values, ids ascending; return its weight.

    Weights of at most slack = (total - need) / n sum to no more than total - need: the nucleus is among the heavier.
    """
    values, ids = scratch.values, scratch.ids
    need = min(max(np.int64(math.ceil(top_p * total)), 1), total)
    slack = (total - need) // tokens.size
    n = 0
    for block in range(-(-tokens.size // BLOCK)):
        if scratch.block_values[block] > slack:
            for i in range(block * BLOCK, min((block + 1) * BLOCK, tokens.size)):
                if values[i] > slack:
                    ids[n], values[n] = tokens[i], values[i]
                    n += 1
    last, ties = _select(values, n, need, True, scratch.histogram)
    kept, total = 0, np.int64(0)
    for i in range(n):
        weight = values[i]
        if weight > last or (weight == last and ties > 0):
            ties -= weight if weight == last else 0
            ids[kept], values[kept] = ids[i], weight
            total += weight
            kept += 1
    return total


@njit_inline
def _pick(tokens: Any, weights: Any, total: Any, uniform: Any) -> Any:
    """Return the first token where the running sum of weights exceeds uniform * total."""
    target = min(np.int64(uniform * total), total - 1)
    i = 0
    running = weights[0]
    while running <= target:
        i += 1
        running += weights[i]
    return tokens[i]


def draw(
    logits: NDArray[np.float32],
    temperature: float,
    top_k: int,
    min_p: float,
    top_p: float,
    uniform: float,
    scratch: SamplingScratch,
) -> int:
    """Draw a token from float32 [V] with `uniform` in [0, 1), temperature > 0; -1 if no logit is above -inf.

    top_k = 0, min_p = 0 and top_p = 1 are off.
    """
    place, size = address_of(logits), logits.size
    return int(_draw.call(place, size, temperature, top_k, min_p, top_p, uniform, scratch.address))


@c_function("int64(uintp, int64, float64, int64, float64, float64, float64, uintp)")
def _draw(
    logits_at: Any, size: Any, temperature: Any, top_k: Any, min_p: Any, top_p: Any, uniform: Any, scratch_at: Any
) -> Any:
    logits, scratch = array_at(logits_at, size, np.float32), arrays_of(scratch_at)
    largest = block_keys(logits, scratch.block_values)
    peak = logits[largest]
    if not (-np.inf < peak < np.inf):
        return largest if peak == np.inf else -1
    tokens, scores = scratch.identity, logits
    if 0 < top_k < logits.size:
        keep_top_k(logits, top_k, scratch)
        tokens, scores = scratch.ids[:top_k], scratch.scores[:top_k]
    total = weigh(scores, peak, temperature, min_p, scratch)
    if top_p < 1.0:
        total = _top_p(tokens, total, top_p, scratch)
        tokens = scratch.ids
    return np.int64(_pick(tokens, scratch.values, total, uniform))


# What a sampler runs.
KERNELS = (_argmax, _draw)
