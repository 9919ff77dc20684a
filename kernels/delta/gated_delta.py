"""The recurrence of Gated DeltaNet, token by token (law 6), with each head's state in a core's cache.

    S = decay * S;  d = beta * (v - S^T k);  S = S + k d^T;  o = S^T q        S float32 [key_dim, value_dim] a V head

as two passes over S for each row of a sequence: the first sums S^T k, before the decay, over even and odd rows of S
apart; the second writes decay * S + k d^T and sums o in ascending order. A pass works on a tuple of vectors of 16
neighbouring float32: the columns of a row of S that are done together. Every column of S is independent of the others,
so their number moves no bit, and a task is a part of a head's columns, for all rows of a sequence: its state is read
once and written once a step.

Then the inputs of the convolution that the next step needs go to the slot. recurrent.py has the layouts, and says what
becomes of rows that may be taken back. Bytes moved a step and sequence: the state, read and written. Source: Yang,
Kautz and Hatamizadeh, Gated Delta Networks (2024), equation 10.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.delta.recurrent import (
    HISTORY,
    LAYER,
    SPAN,
    SPANS,
    DeltaShape,
    slot_place,
    span_at,
    trail_decay,
    trail_delta,
    trail_key,
    trail_row,
)
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import (
    I64,
    f32x16,
    fused_multiply_add,
    load,
    load_f32,
    load_f32x16,
    splat,
    splat_f32x16,
    store,
    store_vector,
)


@intrinsic(prefer_literal=True)
def zero_columns(typingctx, blocks):
    """`blocks` vectors of zeros."""
    columns = types.UniTuple(f32x16, blocks.literal_value)

    def codegen(context, builder, signature, arguments):
        return cgutils.pack_array(builder, [ir.Constant(f32x16.llvm, None)] * columns.count)

    return columns(blocks), codegen


@intrinsic
def accumulate(typingctx, sums, factor, row):
    """sums + factor * row, for float32 columns at the address `row`."""

    def codegen(context, builder, signature, arguments):
        values, factor, row = arguments
        wide = splat(builder, factor, 16)
        columns = cgutils.unpack_tuple(builder, values, sums.count)
        return cgutils.pack_array(
            builder,
            [fused_multiply_add(builder, wide, _load(builder, row, i), total) for i, total in enumerate(columns)],
        )

    return sums(sums, types.float32, types.uintp), codegen


@intrinsic
def error_columns(typingctx, even, odd, values, decay, beta):
    """beta * (values - decay * (even + odd)), for float32 columns at the address `values`."""

    def codegen(context, builder, signature, arguments):
        evens, odds = (cgutils.unpack_tuple(builder, argument, even.count) for argument in arguments[:2])
        values, decay, beta = arguments[2:]
        minus = splat(builder, builder.fneg(decay), 16)
        share = splat(builder, beta, 16)
        errors = []
        for i, pair in enumerate(zip(evens, odds, strict=True)):
            error = fused_multiply_add(builder, minus, builder.fadd(*pair), _load(builder, values, i))
            errors.append(builder.fmul(share, error))
        return cgutils.pack_array(builder, errors)

    return even(even, even, types.uintp, types.float32, types.float32), codegen


@intrinsic
def advance_row(typingctx, sums, deltas, decay, key, query, source, target):
    """target = decay * source + key * deltas; returns sums + query * target."""

    def codegen(context, builder, signature, arguments):
        totals, differences = (cgutils.unpack_tuple(builder, argument, sums.count) for argument in arguments[:2])
        source, target = arguments[5:]
        query = splat(builder, arguments[4], 16)
        rows = _decayed_and_moved(builder, differences, arguments[2], arguments[3], source)
        for i, row in enumerate(rows):
            store(builder, row, _place(builder, target, i))
        return cgutils.pack_array(
            builder, [fused_multiply_add(builder, query, row, total) for row, total in zip(rows, totals, strict=True)]
        )

    scalar, address = types.float32, types.uintp
    return sums(sums, sums, scalar, scalar, scalar, address, address), codegen


@intrinsic
def move_row(typingctx, deltas, decay, key, row):
    """row = decay * row + key * deltas, with the bits of `advance_row`."""

    def codegen(context, builder, signature, arguments):
        differences = cgutils.unpack_tuple(builder, arguments[0], deltas.count)
        rows = _decayed_and_moved(builder, differences, *arguments[1:])
        for i, row in enumerate(rows):
            store(builder, row, _place(builder, arguments[3], i))
        return context.get_dummy_value()

    return types.none(deltas, types.float32, types.float32, types.uintp), codegen


@intrinsic
def load_columns(typingctx, like, row):
    """As many float32 columns as `like` has, from an address on."""

    def codegen(context, builder, signature, arguments):
        return cgutils.pack_array(builder, [_load(builder, arguments[1], i) for i in range(like.count)])

    return like(like, types.uintp), codegen


@intrinsic
def store_columns(typingctx, columns, row):
    """Store the columns at an address."""

    def codegen(context, builder, signature, arguments):
        for i, value in enumerate(cgutils.unpack_tuple(builder, arguments[0], columns.count)):
            store(builder, value, _place(builder, arguments[1], i))
        return context.get_dummy_value()

    return types.none(columns, types.uintp), codegen


def _decayed_and_moved(builder, deltas, decay, key, source):
    decay, key = splat(builder, decay, 16), splat(builder, key, 16)
    decayed = [builder.fmul(decay, _load(builder, source, i)) for i in range(len(deltas))]
    return [fused_multiply_add(builder, key, delta, old) for delta, old in zip(deltas, decayed, strict=True)]


def _place(builder, address, index):
    return builder.add(address, I64(64 * index))


def _load(builder, address, index):
    return load(builder, _place(builder, address, index), f32x16.llvm)


DELTA = op_record(
    layer="u8",  # address of the LAYER record
    output="u8",  # float32 [rows, V heads * value_dim]
    scratch="u8",  # float32 [threads, scratch_floats]
    scratch_floats="i8",
)


def scratch_floats(shape: DeltaShape) -> int:
    """Return the floats of scratch that a thread needs: a part of a head's state, and a row of its columns."""
    return (shape.key_dim + 1) * shape.part_columns


def blocks_at_once(shape: DeltaShape, tier: int) -> int:
    """Return how many vectors of 16 columns the passes take together: the sums of two must stay in registers."""
    registers = 4 if TIERS_BY_NUMBER[tier].lanes == 16 else 2
    return min(registers, shape.part_columns // 16)


@njit_inline
def _advance(source, target, key, query, values, decay, beta, key_dim, row_bytes, output, deltas_at, zero):
    """Take some columns of a head's state from `source` through one row, to `target`."""
    even, odd = zero, zero
    for i in range(0, key_dim, 2):
        row, k = source + np.uintp(i * row_bytes), key + np.uintp(i * 4)
        even = accumulate(even, load_f32(k), row)
        odd = accumulate(odd, load_f32(k + np.uintp(4)), row + np.uintp(row_bytes))
    deltas = error_columns(even, odd, values, decay, beta)
    store_columns(deltas, deltas_at)
    sums = zero
    for i in range(key_dim):
        at, place = np.uintp(i * 4), np.uintp(i * row_bytes)
        sums = advance_row(
            sums, deltas, decay, load_f32(key + at), load_f32(query + at), source + place, target + place
        )
    store_columns(sums, output)


@njit_inline
def _catch_up(layer, span, head, key_head, column, state, row_bytes, zero):
    """Do to some columns of a head's state what the pending rows would have done."""
    key_dim = layer.key_dim
    for row in range(span.pending):
        trail = trail_row(layer, span.pending_trail, row)
        key = trail_key(layer, trail) + np.uintp(key_head * key_dim * 4)
        deltas = load_columns(zero, trail_delta(layer, trail) + np.uintp((head * layer.value_dim + column) * 4))
        decay = load_f32(trail_decay(layer, trail) + np.uintp(head * 4))
        for i in range(key_dim):
            move_row(deltas, decay, load_f32(key + np.uintp(i * 4)), state + np.uintp(i * row_bytes))


@njit_inline
def _run_rows(delta, layer, span, head, key_head, column, state, row_bytes, scratch, zero):
    """Take some columns, from `column` of a head on, through the rows of a sequence; `state` is where they begin."""
    key_dim, value_dim = layer.key_dim, layer.value_dim
    keys = layer.key_heads * key_dim
    source, target = state, state
    deltas_at = scratch + np.uintp(key_dim * row_bytes)
    if span.trail >= 0:
        target = scratch
    for index in range(span.rows):
        row = span.first_row + index
        mixed = np.uintp(layer.mixed) + np.uintp(row * layer.channels * 4)
        query = mixed + np.uintp(key_head * key_dim * 4)
        key = query + np.uintp(keys * 4)
        place = head * value_dim + column
        gate = np.uintp((row * layer.gate_stride + head) * 4)
        output = np.uintp(delta.output) + np.uintp((row * layer.value_heads * value_dim + place) * 4)
        if span.trail >= 0:
            deltas_at = trail_delta(layer, trail_row(layer, span.trail, index)) + np.uintp(place * 4)
        _advance(
            source, target, key, query, mixed + np.uintp((2 * keys + place) * 4),
            load_f32(np.uintp(layer.decay) + gate), load_f32(np.uintp(layer.beta) + gate),
            key_dim, row_bytes, output, deltas_at, zero,
        )  # fmt: skip
        source = target


@njit_inline
def _copy(source, target, floats):
    for offset in range(0, floats * 4, 64):
        store_vector(load_f32x16(source + np.uintp(offset)), target + np.uintp(offset))


@njit_inline
def _clear(target, floats):
    for offset in range(0, floats * 4, 64):
        store_vector(splat_f32x16(np.float32(0)), target + np.uintp(offset))


@njit_inline
def _keep_history(layer, span):
    """Move the inputs of the convolution that the next step needs to the slot: the last three rows that are done."""
    row_bytes = layer.channels * 4
    history = slot_place(layer, span.slot, layer.conv_at)
    if span.is_first != 0:
        _clear(history, HISTORY * layer.channels)
    done = span.pending
    if span.trail < 0:
        done += span.rows
    if done == 0:
        return
    for place in range(HISTORY):
        index = done - HISTORY + place  # of the pending rows, then of the step's
        source = history + np.uintp((index + HISTORY) * row_bytes)
        if index >= span.pending:
            source = np.uintp(layer.raw) + np.uintp((span.first_row + index - span.pending) * row_bytes)
        elif index >= 0:
            source = trail_row(layer, span.pending_trail, index)
        _copy(source, history + np.uintp(place * row_bytes), layer.channels)


@njit_inline
def _leave_trail(layer, span):
    """Write a sequence's rows to its trail, without the deltas."""
    keys = layer.key_heads * layer.key_dim
    for index in range(span.rows):
        row, trail = span.first_row + index, trail_row(layer, span.trail, index)
        channels_at = np.uintp(row * layer.channels * 4)
        _copy(np.uintp(layer.raw) + channels_at, trail, layer.channels)
        _copy(np.uintp(layer.mixed) + channels_at + np.uintp(keys * 4), trail_key(layer, trail), keys)
        decay = np.uintp(layer.decay) + np.uintp(row * layer.gate_stride * 4)
        _copy(decay, trail_decay(layer, trail), layer.gate_stride)


@kernel(KERNEL_SIGNATURE)
def delta_kernel(blocks: int) -> Any:
    """Compile the op for passes over `blocks` vectors; a task is a part of a head of one sequence, or its history."""

    def delta_op(op, thread, threads):
        delta = record_at(op, DELTA)
        layer = record_at(np.uintp(delta.layer), LAYER)
        spans = record_at(np.uintp(layer.spans), SPANS)
        zero = zero_columns(blocks)
        parts = layer.value_dim // layer.part_columns
        row_bytes, part_floats = layer.part_columns * 4, layer.key_dim * layer.part_columns
        scratch = np.uintp(delta.scratch) + np.uintp(thread * delta.scratch_floats * 4)
        while True:
            task = claim_task(op) - spans.count
            if task < 0:
                span = record_at(span_at(spans, task + spans.count), SPAN)
                _keep_history(layer, span)
                if span.trail >= 0:
                    _leave_trail(layer, span)
                continue
            number = task // (layer.value_heads * parts)
            if number >= spans.count:
                return
            span = record_at(span_at(spans, number), SPAN)
            part = task % (layer.value_heads * parts)
            head = part // parts
            key_head = head // (layer.value_heads // layer.key_heads)
            if layer.is_tiled != 0:
                key_head = head % layer.key_heads
            state = slot_place(layer, span.slot, layer.state_at + part * part_floats * 4)
            if span.is_first != 0:
                _clear(state, part_floats)
            for first in range(0, layer.part_columns, blocks * 16):
                at, column = np.uintp(first * 4), part % parts * layer.part_columns + first
                _catch_up(layer, span, head, key_head, column, state + at, row_bytes, zero)
                _run_rows(
                    delta, layer, span, head, key_head, column, state + at, row_bytes, scratch + at, zero,
                )  # fmt: skip

    return delta_op
