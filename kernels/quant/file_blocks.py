"""Emits the code that takes apart one block of one row as the file holds it, by its layout (file_layout.py)."""

from kernels.build.toolchain import ir
from kernels.simd.vectors import I8, I16, I32, I64, constant, load

# Numbers taken out of a block at a time: one 16-byte vector.
CHUNK = 16


def emit_weights(builder, block, layout, first):
    """The stored numbers of values first..first + 15: 16 x i8, unsigned."""
    weights = _emit_numbers(builder, block, layout.weights, range(first, first + CHUNK))
    return builder.xor(weights, constant(weights.type, layout.weights_xor))


def emit_scales(builder, block, layout):
    """The scales of all sub-blocks: vector of signed bytes."""
    scales = _emit_numbers(builder, block, layout.scales, _all_numbers(layout.scales))
    return builder.sub(scales, constant(scales.type, layout.scales_minus))


def emit_minimums(builder, block, layout):
    """The minimums of all sub-blocks: vector of unsigned bytes."""
    return _emit_numbers(builder, block, layout.minimums, _all_numbers(layout.minimums))


def _all_numbers(fields):
    return range(max(field.numbers.stop for field in fields))


def _emit_numbers(builder, block, fields, numbers):
    """Join the bits of all fields: a vector with a byte a number."""
    value = ir.Constant(ir.VectorType(I8, len(numbers)), None)
    for field in fields:
        if field.numbers.start < numbers.stop and numbers.start < field.numbers.stop:
            value = builder.or_(value, _emit_bits(builder, block, field, numbers))
    return value


def _emit_bits(builder, block, field, numbers):
    """One field's bits of each number, moved to their place in it; zeros for a number that has none there."""
    there = [number in field.numbers for number in numbers]
    places = [field.source(number if has else field.first) for number, has in zip(numbers, there, strict=True)]
    first, last = min(byte for byte, _ in places), max(byte for byte, _ in places)
    source = load(builder, builder.add(block, I64(first)), ir.VectorType(I8, last - first + 1))
    picks = [byte - first for byte, _ in places]
    if picks != list(range(source.type.count)):
        mask = ir.Constant(ir.VectorType(I32, len(picks)), picks)
        source = builder.shuffle_vector(source, ir.Constant(source.type, ir.Undefined), mask)
    moved = _shift(builder, source, [bit - field.shift for _, bit in places])
    return builder.and_(moved, ir.Constant(moved.type, [field.mask if has else 0 for has in there]))


def _shift(builder, vector, right):
    """Shift each byte right (left where negative); the caller masks what came over from the neighbour.

    Processors have no shifts of bytes. One shift for all bytes is done on pairs of them.
    """
    if any(bits != right[0] for bits in right):
        wide = ir.VectorType(I16, vector.type.count)
        # Left by 8 first, so that all shifts are to the right.
        raised = builder.shl(builder.zext(vector, wide), constant(wide, 8))
        moved = builder.lshr(raised, ir.Constant(wide, [8 + bits for bits in right]))
        return builder.trunc(moved, vector.type)
    if right[0] == 0:
        return vector
    pairs = ir.VectorType(I16, vector.type.count // 2)
    wide = builder.bitcast(vector, pairs)
    by = constant(pairs, abs(right[0]))
    return builder.bitcast(builder.lshr(wide, by) if right[0] > 0 else builder.shl(wide, by), vector.type)
