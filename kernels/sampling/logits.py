"""Ops on rows of logits: the likeliest token, logarithms of a softmax, and banned tokens.

likeliest     the token of the largest logit, as sampling.argmax has it; an op behind the head, where the logits
              still lie in the cache. Bytes read: 4 a logit.
log_softmax   ln p_i = (x_i - max x) - ln(sum of exp(x_j - max x)), and the likeliest tokens. NaN counts as -inf.
              The exponentials are the samplers' integer weights, so their sum is exact and has no order. The
              logarithm is made of IEEE operations in one order, so the bits are the same on every machine. Bytes
              moved for a vocabulary of V: 16 V.
ban_unset     x_i = -inf where bit i % 32 of word i // 32 of a mask is 0. Bytes moved: V / 8, and 4 for each
              banned token.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import KERNEL_SIGNATURE, c_function, kernel, njit_inline
from kernels.machine.memory import address_of
from kernels.run.program import array_at, claim_task, op_record, record_at
from kernels.sampling.sampling import WEIGHT_BITS, SamplingScratch, arrays_of, block_keys, keep_top_k, largest_of, weigh
from kernels.simd.vectors import load_i64

_LN2 = 0.6931471805599453
_SQRT2 = 1.4142135623730951
# atanh(s) / s = 1 + z/3 + z^2/5 + ... with z = s^2 <= 0.0295: the first term left out is below 2^-60.
_TERMS = tuple(1.0 / (2 * k + 1) for k in range(11, -1, -1))


@njit_inline
def _natural_logarithm(x: Any) -> Any:
    """Return ln(x) of a float64 >= 1: 2^e * m with m in (1 / sqrt 2, sqrt 2], ln m = 2 atanh((m - 1) / (m + 1))."""
    exponent = 0
    while x > _SQRT2:
        x *= 0.5
        exponent += 1
    s = (x - 1.0) / (x + 1.0)
    z = s * s
    p = 0.0
    for term in _TERMS:
        p = p * z + term
    return exponent * _LN2 + 2.0 * s * p


def log_softmax(logits: NDArray[np.float32], top: int, scratch: SamplingScratch) -> tuple[float, float]:
    """Return max x, f32, and ln(sum of exp(x - max x)), f64, of float32 [V]; NaN for the latter if max x is infinite.

    Leaves the `top` largest logits, ties to the lower id, in scratch.ids and scratch.scores, ids ascending; top <= V.
    """
    _write_log_softmax.call(address_of(logits), logits.size, top, scratch.address)
    peak, log_sum = scratch.arrays.results.tolist()
    return peak, log_sum


@c_function("void(uintp, int64, int64, uintp)")
def _write_log_softmax(logits_at: Any, size: Any, top: Any, scratch_at: Any) -> None:
    scratch = arrays_of(scratch_at)
    peak, log_sum = _log_softmax(array_at(logits_at, size, np.float32), top, scratch)
    scratch.results[0], scratch.results[1] = peak, log_sum


@njit_inline
def _log_softmax(logits: Any, top: Any, scratch: Any) -> Any:
    peak = logits[block_keys(logits, scratch.block_values)]
    if not (-np.inf < peak < np.inf):
        return peak, np.nan
    if top > 0:
        keep_top_k(logits, top, scratch)
    total = weigh(logits, peak, 1.0, 0.0, scratch)
    return peak, _natural_logarithm(np.float64(total) / (1 << WEIGHT_BITS))


# What a sampler runs.
LOGPROB_KERNELS = (_write_log_softmax,)


LIKELIEST = op_record(
    logits="u8",  # float32 [rows, stride]
    stride="i8",
    vocabulary="i8",
    rows="u8",  # address of the row count, int64
    tokens="u8",  # int64 [rows]: the lowest id of the largest logit; -1 if no logit is above -inf
)


@kernel(KERNEL_SIGNATURE)
def likeliest_kernel() -> Any:
    """Compile the op; a task is one row."""

    def likeliest_op(op, thread, threads):
        likeliest = record_at(op, LIKELIEST)
        rows = load_i64(np.uintp(likeliest.rows))
        tokens = array_at(np.uintp(likeliest.tokens), rows, np.int64)
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            logits = np.uintp(likeliest.logits) + np.uintp(row * likeliest.stride * 4)
            tokens[row] = largest_of(logits, likeliest.vocabulary)

    return likeliest_op


WORD = 32  # tokens a word


def ban_unset(logits: NDArray[np.float32], mask: NDArray[np.int32]) -> None:
    """Ban in float32 [V] what int32 [words] does not allow; tokens beyond the mask are banned too."""
    _ban_unset.call(address_of(logits), logits.size, address_of(mask), mask.size)


@c_function("void(uintp, int64, uintp, int64)")
def _ban_unset(logits_at, size, mask_at, words):
    logits, mask = array_at(logits_at, size, np.float32), array_at(mask_at, words, np.int32)
    for word in range(-(-logits.size // WORD)):
        bits = mask[word] if word < mask.size else np.int32(0)
        if bits == -1:
            continue
        part = logits[word * WORD : (word + 1) * WORD]
        if bits == 0:
            part[:] = -np.inf
            continue
        for i in range(part.size):
            if not (bits >> i) & 1:
                part[i] = -np.inf


# What a sampler runs.
MASK_KERNELS = (_ban_unset,)
