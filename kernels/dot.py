"""The integer dot product, lowered by tier: i32 += four unsigned weights times four signed activations, for each row.

A lowering sees vectors of weight bytes in the x16 layout (row r's four k-values in bytes 4r..4r+3) and broadcasts one
activation quad over the rows. Integer sums are exact in any order, so all tiers give the same bits.

    avx512   one `vpdpbusd` on 16 rows (AVX-512 VNNI)
    avx2     `vpmaddubsw` on 8 rows at a time; small weights are summed in int16 as long as they cannot overflow, 8-bit
             weights are made signed first, since pairs of 255 * 127 would saturate
    generic  plain LLVM IR: widen, multiply, add
"""

from llvmlite import ir

from kernels.simd import I8, I16, I32, call, constant, load, splat

_ACTIVATION_LIMIT = 127  # activations are quantized to [-127, 127]


class GenericDot:
    """Sixteen rows in plain LLVM IR, for any processor."""

    rows = 16

    def __init__(self, builder, max_weight, offset):
        self.builder, self.offset = builder, offset

    def zero(self):
        """The state of an empty sum."""
        return ir.Constant(ir.VectorType(I32, self.rows), None)

    def add(self, state, weights, quad_address):
        """Add the dot product of one vector of weights with one quad of activations."""
        builder, wide = self.builder, ir.VectorType(I16, 64)
        quad = builder.bitcast(splat(builder, load(builder, quad_address, I32), 16), ir.VectorType(I8, 64))
        products = builder.mul(builder.zext(weights, wide), builder.sext(quad, wide))
        pairs = self._add_halves(builder.bitcast(products, ir.VectorType(I32, 32)))
        even, odd = self._deinterleave(pairs)
        return builder.add(state, builder.add(even, odd))

    def total(self, state):
        """The finished sum of weight * activation."""
        return state

    def without_offset(self, total, integer_sum_address):
        """The sum of (weight - offset) * activation."""
        return _subtract_offset(self.builder, total, integer_sum_address, self.offset)

    def _add_halves(self, value):
        sixteen = constant(value.type, 16)
        low = self.builder.ashr(self.builder.shl(value, sixteen), sixteen)
        return self.builder.add(low, self.builder.ashr(value, sixteen))

    def _deinterleave(self, value):
        undefined = ir.Constant(value.type, ir.Undefined)
        masks = [ir.Constant(ir.VectorType(I32, 16), list(range(start, 32, 2))) for start in (0, 1)]
        return [self.builder.shuffle_vector(value, undefined, mask) for mask in masks]


class Avx512Dot(GenericDot):
    """Sixteen rows by `vpdpbusd` (Intel SDM, VPDPBUSD)."""

    def add(self, state, weights, quad_address):
        builder = self.builder
        quad = builder.bitcast(splat(builder, load(builder, quad_address, I32), 16), ir.VectorType(I8, 64))
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", state.type, [state, weights, quad])


class Avx2Dot:
    """Eight rows by `vpmaddubsw`; the state is (int32 sums, int16 sums, how many more products int16 can take)."""

    rows = 8

    def __init__(self, builder, max_weight, offset):
        self.builder, self.offset = builder, offset
        self.room = 32767 // (2 * max_weight * _ACTIVATION_LIMIT)
        self.signed = self.room == 0
        assert not self.signed or offset == 128, "8-bit weights must be stored xor 0x80"

    def zero(self):
        """The state of an empty sum."""
        return None, None, self.room

    def add(self, state, weights, quad_address):
        """Add the dot product of one vector of weights with one quad of activations."""
        builder = self.builder
        quad = builder.bitcast(splat(builder, load(builder, quad_address, I32), 8), ir.VectorType(I8, 32))
        if self.signed:
            return self._widen(state[0], self._signed_pairs(weights, quad)), None, 0
        pairs = self._pairs(weights, quad)
        wide, narrow, room = state
        if room == 0:
            wide, narrow, room = self._widen(wide, narrow), None, self.room
        return wide, pairs if narrow is None else builder.add(narrow, pairs), room - 1

    def total(self, state):
        """The finished sum of weight * activation."""
        wide, narrow, _ = state
        return wide if narrow is None else self._widen(wide, narrow)

    def without_offset(self, total, integer_sum_address):
        """The sum of (weight - offset) * activation; weights made signed have lost their offset already."""
        return _subtract_offset(self.builder, total, integer_sum_address, 0 if self.signed else self.offset)

    def _pairs(self, unsigned, signed):
        return call(self.builder, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(I16, 16), [unsigned, signed])

    def _signed_pairs(self, weights, quad):
        """Move the weight's sign to the activation: |w| * (sign(w) * x), at most 2 * 128 * 127 a pair."""
        builder, vector = self.builder, weights.type
        signed = builder.xor(weights, constant(vector, 128))
        magnitude = call(builder, "llvm.abs.v32i8", vector, [signed, ir.Constant(ir.IntType(1), 0)])
        return self._pairs(magnitude, call(builder, "llvm.x86.avx2.psign.b", vector, [quad, signed]))

    def _widen(self, wide, narrow):
        ones = constant(narrow.type, 1)
        pairs = call(self.builder, "llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), [narrow, ones])
        return pairs if wide is None else self.builder.add(wide, pairs)


def _subtract_offset(builder, total, integer_sum_address, offset):
    if offset == 0:
        return total
    shift = offset.bit_length() - 1
    assert offset == 1 << shift, "offsets are powers of two"
    sums = splat(builder, load(builder, integer_sum_address, I32), total.type.count)
    return builder.sub(total, builder.shl(sums, constant(total.type, shift)))


DOTS_BY_TIER: dict[int, type[GenericDot] | type[Avx2Dot]] = {0: GenericDot, 1: Avx2Dot, 2: Avx512Dot}
