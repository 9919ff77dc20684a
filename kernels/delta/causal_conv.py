"""The short convolution before a Gated DeltaNet layer's recurrence, with the norms of its heads and its two gates.

    u[t] = silu(sum over i of taps[i] * raw[t - 3 + i])       of each channel, i ascending
    q = u / sqrt(sum(u**2) + epsilon) * key_dim**-0.5         of each K head; k likewise, without the factor
    decay = exp(A * softplus(a + dt)),  beta = sigmoid(b)     of each V head; A is negative

raw[t] is 0 before the sequence begins. A row's inputs are those of its step, of the trail's pending rows and of the
slot, in this order. A sum of squares takes 16 fixed lanes, then a fixed tree (law 3). Source: Yang, Kautz and
Hatamizadeh, Gated Delta Networks (2024). Bytes a row: 4 * channels, read four times out of a cache and written once.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.delta.recurrent import HISTORY, LAYER, SPAN, SPANS, slot_place, span_at, trail_row
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.exp import exp_f32x16, softplus_f32x16
from kernels.simd.vectors import fma, load_f32x16, load_i64, reduce_add, splat_f32x16, store_vector

CONV = op_record(
    layer="u8",  # address of the LAYER record
    taps="u8",  # float32 [4, channels], the last of them for the row itself
    zeros="u8",  # float32 [channels]
    rates="u8",  # float32 [gate_stride]: A of each V head
    shifts="u8",  # float32 [gate_stride]: dt of each V head
    epsilon="f4",
)
# Channels of one task, at least.
_TASK_CHANNELS = 512


@njit_inline
def _raw(layer, zeros, span, row, back):
    """The address of the inputs of the row `back` rows before."""
    row_bytes = layer.channels * 4
    index = row - back - span.first_row
    if index >= 0:
        return np.uintp(layer.raw) + np.uintp((row - back) * row_bytes)
    index += span.pending
    if index >= 0:
        return trail_row(layer, span.pending_trail, index)
    if span.is_first != 0:
        return zeros
    return slot_place(layer, span.slot, layer.conv_at + (index + HISTORY) * row_bytes)


@njit_inline
def _convolve(conv, layer, row, first, last):
    """Write channels first..last-1 of one row, not normalized."""
    spans = record_at(np.uintp(layer.spans), SPANS)
    span = record_at(span_at(spans, load_i64(np.uintp(spans.row_spans) + np.uintp(row * 8))), SPAN)
    zeros, row_bytes = np.uintp(conv.zeros), np.uintp(layer.channels * 4)
    x0, x1 = _raw(layer, zeros, span, row, 3), _raw(layer, zeros, span, row, 2)
    x2, x3 = _raw(layer, zeros, span, row, 1), _raw(layer, zeros, span, row, 0)
    target = np.uintp(layer.mixed) + np.uintp(row) * row_bytes
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    for channel in range(first, last, 16):
        at = np.uintp(channel * 4)
        taps = np.uintp(conv.taps) + at
        u = load_f32x16(taps) * load_f32x16(x0 + at)
        u = fma(load_f32x16(taps + row_bytes), load_f32x16(x1 + at), u)
        u = fma(load_f32x16(taps + np.uintp(2) * row_bytes), load_f32x16(x2 + at), u)
        u = fma(load_f32x16(taps + np.uintp(3) * row_bytes), load_f32x16(x3 + at), u)
        store_vector(u / (one + exp_f32x16(zero - u)), target + at)


@njit_inline
def _normalize(head, dim, epsilon, factor):
    """Give a head the length `factor`."""
    squares = splat_f32x16(np.float32(0))
    for column in range(0, dim, 16):
        x = load_f32x16(head + np.uintp(column * 4))
        squares = fma(x, x, squares)
    scale = splat_f32x16(factor / np.sqrt(reduce_add(squares) + epsilon))
    for column in range(0, dim, 16):
        place = head + np.uintp(column * 4)
        store_vector(load_f32x16(place) * scale, place)


@njit_inline
def _open_gates(conv, layer, row):
    """Overwrite a and b of one row with decay and beta; what is not finite stays visible."""
    offset = row * layer.gate_stride
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    for head in range(0, layer.gate_stride, 16):
        at = np.uintp(head * 4)
        decays, betas = (
            np.uintp(layer.decay) + np.uintp((offset + head) * 4),
            np.uintp(layer.beta) + np.uintp((offset + head) * 4),
        )
        a, b = load_f32x16(decays) + load_f32x16(np.uintp(conv.shifts) + at), load_f32x16(betas)
        decay = exp_f32x16(load_f32x16(np.uintp(conv.rates) + at) * softplus_f32x16(a))
        store_vector(fma(a, zero, decay), decays)
        store_vector(fma(b, zero, one / (one + exp_f32x16(zero - b))), betas)


@kernel(KERNEL_SIGNATURE)
def conv_kernel() -> Any:
    """Compile the op; a task is some heads of one row, or its gates."""

    def conv_op(op, thread, threads):
        conv = record_at(op, CONV)
        layer = record_at(np.uintp(conv.layer), LAYER)
        rows = record_at(np.uintp(layer.spans), SPANS).rows
        dim, channels = layer.key_dim, layer.channels
        normalized = 2 * layer.key_heads * dim  # channels of q and k
        query_factor = np.float32(1) / np.sqrt(np.float32(dim))
        step = (_TASK_CHANNELS + dim - 1) // dim * dim
        units = (channels + step - 1) // step + 1
        while True:
            task = claim_task(op)
            row = task // units
            if row >= rows:
                return
            first = task % units * step
            if first >= channels:
                _open_gates(conv, layer, row)
                continue
            last = min(first + step, channels)
            _convolve(conv, layer, row, first, last)
            for channel in range(first, min(last, normalized), dim):
                head = np.uintp(layer.mixed) + np.uintp((row * channels + channel) * 4)
                factor = query_factor if channel * 2 < normalized else np.float32(1)
                _normalize(head, dim, conv.epsilon, factor)

    return conv_op
