"""Tuples of vectors as the columns of a matrix's row: what the recurrence of gated_delta.py does at each of its rows.

A tuple holds `blocks` vectors of 16 neighbouring float32; a row's columns are independent of each other, so that their
number moves no bit.
"""

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.simd.vectors import I64, f32x16, fused_multiply_add, load, splat, store


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
