"""IEEE half precision and E8M0 exponents to and from float32, with the same bits on every processor.

Processors with F16C have an instruction for each direction, whatever the tier. Elsewhere the same result comes from
integer steps: LLVM would call a library function there, which may be missing. Rounding is to nearest, ties to even.
Values from 65520 on become infinite; those below 2**-14 are rounded to multiples of 2**-24.
Sources: IEEE 754-2019, binary16 (1 sign bit, 5 exponent bits with bias 15, 10 bits of fraction); OCP Microscaling
Formats (MX) specification 1.0, E8M0.
"""

from kernels.build.toolchain import ir
from kernels.machine.cpu import has_half_instructions
from kernels.simd.vectors import F16, F32, I8, I16, I32, constant, load

_TWO_TO_16 = 0x47800000  # bits of 65536.0, which becomes the half's infinity
_TWO_TO_MINUS_14 = 0x38800000  # the smallest normal half
_INFINITY = 0x7F800000


def load_f16(builder, address, lanes):
    """Load some halves as a float vector."""
    return half_to_float(builder, load(builder, address, ir.VectorType(I16, lanes)))


def load_e8m0(builder, address, lanes):
    """Load some exponent bytes e as 2**(e - 128), a subnormal float for e < 2."""
    ints = ir.VectorType(I32, lanes)
    exponents = builder.zext(load(builder, address, ir.VectorType(I8, lanes)), ints)
    normal = builder.shl(builder.sub(exponents, constant(ints, 1)), constant(ints, 23))
    # 2**(e - 128) for e of 0 and 1: the leading bit moves into the fraction.
    subnormal = builder.shl(constant(ints, 0x00200000), exponents)
    is_small = builder.icmp_unsigned("<", exponents, constant(ints, 2))
    return builder.bitcast(builder.select(is_small, subnormal, normal), ir.VectorType(F32, lanes))


def half_to_float(builder, halves):
    """Widen a vector of int16 that holds halves."""
    lanes = halves.type.count
    floats, integers = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
    if has_half_instructions():
        return builder.fpext(builder.bitcast(halves, ir.VectorType(F16, lanes)), floats)
    bits = builder.zext(halves, integers)
    magnitude = builder.and_(bits, constant(integers, 0x7FFF))
    # The fraction and exponent moved to their places, then 2**(127 - 15) for the other bias: right for subnormals too.
    shifted = builder.bitcast(builder.shl(magnitude, constant(integers, 13)), floats)
    scaled = builder.bitcast(builder.fmul(shifted, constant(floats, 2.0**112)), integers)
    special = builder.icmp_unsigned(">=", magnitude, constant(integers, 0x7C00))
    value = builder.select(special, builder.or_(scaled, constant(integers, _INFINITY)), scaled)
    sign = builder.shl(builder.and_(bits, constant(integers, 0x8000)), constant(integers, 16))
    return builder.bitcast(builder.or_(value, sign), floats)


def float_to_half(builder, floats):
    """Round a vector of float32 to halves, as int16."""
    lanes = floats.type.count
    integers, shorts = ir.VectorType(I32, lanes), ir.VectorType(I16, lanes)
    if has_half_instructions():
        return builder.bitcast(builder.fptrunc(floats, ir.VectorType(F16, lanes)), shorts)
    bits = builder.bitcast(floats, integers)
    magnitude = builder.and_(bits, constant(integers, 0x7FFFFFFF))
    limit = constant(integers, _TWO_TO_16)
    bounded = builder.select(builder.icmp_signed(">", magnitude, limit), limit, magnitude)
    half = builder.select(
        builder.icmp_signed("<", magnitude, constant(integers, _TWO_TO_MINUS_14)),
        _rounded_subnormal(builder, bounded, floats.type),
        _rounded_normal(builder, bounded),
    )
    not_a_number = builder.icmp_signed(">", magnitude, constant(integers, _INFINITY))
    half = builder.select(not_a_number, constant(integers, 0x7E00), half)
    sign = builder.and_(builder.lshr(bits, constant(integers, 16)), constant(integers, 0x8000))
    return builder.trunc(builder.or_(half, sign), shorts)


def _rounded_normal(builder, magnitude):
    """Drop 13 bits of fraction, ties to even; a carry runs on into the exponent."""
    integers = magnitude.type
    odd = builder.and_(builder.lshr(magnitude, constant(integers, 13)), constant(integers, 1))
    rebias = constant(integers, 0xFFF - ((127 - 15) << 23))
    return builder.lshr(builder.add(builder.add(magnitude, rebias), odd), constant(integers, 13))


def _rounded_subnormal(builder, magnitude, floats):
    """Count multiples of 2**-24: in the sum with 0.5 that is the place of the last bit."""
    integers = magnitude.type
    total = builder.fadd(builder.bitcast(magnitude, floats), constant(floats, 0.5))
    return builder.sub(builder.bitcast(total, integers), builder.bitcast(constant(floats, 0.5), integers))
