"""The integer dot product, lowered by tier: i32 += four unsigned weights times four signed activations, for each row.

A lowering sees vectors of weight bytes in the x16 layout (row r's four k-values in bytes 4r..4r+3) and broadcasts one
activation quad over the rows. Sums may be multiplied by a whole-number scale of each row. Integer arithmetic is exact
in any order, so all tiers give the same bits.

    avx512   one `vpdpbusd` on 16 rows (AVX-512 VNNI)
    avxvnni  one `vpdpbusd` on 8 rows (AVX-VNNI)
    avx2     `vpmaddubsw` on 8 rows; products are summed in int16 as long as they cannot overflow, then widened by
             `vpmaddwd`, which multiplies by the scale on the way; 8-bit weights are made signed first, since pairs of
             255 * 127 would saturate
    generic  plain LLVM IR: widen, multiply, add
"""

from dataclasses import dataclass
from typing import Any

from kernels.build.toolchain import ir
from kernels.simd.vectors import I8, I16, I32, call, constant, load, splat

_ACTIVATION_LIMIT = 127  # activations are quantized to [-127, 127]


@dataclass
class Sum:
    """A sum that is being made: `total` + scale * (`wide` + `narrow`)."""

    total: Any  # i32 vector
    scale: Any  # of `Dot.scale`, or None for 1
    wide: Any = None  # i32 vector, or None for 0
    narrow: Any = None  # i16 vector, or None for 0
    room: int = 0  # how many more products `narrow` can take


class GenericDot:
    """Sixteen rows in plain LLVM IR, for any processor."""

    rows = 16

    def __init__(self, builder, max_weight, offset):
        self.builder, self.max_weight = builder, max_weight
        # What is to be taken off the weights after the sum.
        self.offset = offset
        self.sums = ir.VectorType(I32, self.rows)
        self.bytes = ir.VectorType(I8, 4 * self.rows)
        self.pairs = ir.VectorType(I16, 2 * self.rows)

    def zero(self):
        """A total of nothing."""
        return ir.Constant(self.sums, None)

    def scale(self, pairs, which):
        """Scale number `which` (0 or 1) of each row's pair of int16, in the form that sums take."""
        wide = self.builder.bitcast(pairs, self.sums)
        sixteen = constant(self.sums, 16)
        return self.builder.ashr(wide if which else self.builder.shl(wide, sixteen), sixteen)

    def start(self, total, scale=None):
        """Begin a sum that adds to `total`."""
        return Sum(total, scale)

    def add(self, state, weights, quad_address):
        """Add the dot product of one vector of weights with one quad of activations."""
        quad = self._broadcast(quad_address, self.bytes)
        state.wide = self._dot(self.zero() if state.wide is None else state.wide, weights, quad)

    def finish(self, state):
        """Return the total."""
        scaled = state.wide if state.scale is None else self.builder.mul(state.wide, state.scale)
        return self.builder.add(state.total, scaled)

    def lookup(self, indices, table):
        """Replace each byte (0..15) by its entry in a table of 16 unsigned bytes."""
        builder, vector = self.builder, indices.type
        level = [constant(vector, entry) for entry in table]
        for bit in range(4):
            is_set = builder.icmp_unsigned(
                "!=", builder.and_(indices, constant(vector, 1 << bit)), ir.Constant(vector, None)
            )
            level = [builder.select(is_set, level[i + 1], level[i]) for i in range(0, len(level), 2)]
        return level[0]

    def shifted(self, number, left):
        """number << left for every row."""
        return splat(self.builder, self.builder.shl(number, I32(left)), self.rows)

    def add_pairs(self, total, pairs, pair_address):
        """total + a * x + b * y for each row's int16 pair (a, b) and one pair (x, y) in memory."""
        return self._pair_products(total, pairs, self._broadcast(pair_address, self.pairs))

    def _broadcast(self, address, vector):
        return self.builder.bitcast(splat(self.builder, load(self.builder, address, I32), self.rows), vector)

    def _dot(self, total, weights, quad):
        builder, wide = self.builder, ir.VectorType(I16, 64)
        products = builder.mul(builder.zext(weights, wide), builder.sext(quad, wide))
        pairs = self._add_halves(builder.bitcast(products, ir.VectorType(I32, 32)))
        even, odd = self._deinterleave(pairs)
        return builder.add(total, builder.add(even, odd))

    def _pair_products(self, total, a, b):
        builder, wide = self.builder, ir.VectorType(I32, 2 * self.rows)
        even, odd = self._deinterleave(builder.mul(builder.sext(a, wide), builder.sext(b, wide)))
        return builder.add(total, builder.add(even, odd))

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

    def lookup(self, indices, table):
        """See GenericDot."""
        return call(self.builder, "llvm.x86.avx512.pshuf.b.512", indices.type, [_lanes(table, 4), indices])

    def _dot(self, total, weights, quad):
        return call(self.builder, "llvm.x86.avx512.vpdpbusd.512", self.sums, [total, weights, quad])

    def _pair_products(self, total, a, b):
        products = call(self.builder, "llvm.x86.avx512.pmaddw.d.512", self.sums, [a, b])
        return self.builder.add(total, products)


class AvxVnniDot(GenericDot):
    """Eight rows by `vpdpbusd` (Intel SDM, VPDPBUSD, VEX encoding)."""

    rows = 8

    def lookup(self, indices, table):
        """See GenericDot."""
        return call(self.builder, "llvm.x86.avx2.pshuf.b", indices.type, [_lanes(table, 2), indices])

    def shifted(self, number, left):
        """See GenericDot. The number goes to a vector register straight from memory, and is shifted there."""
        wide = splat(self.builder, number, self.rows)
        # LLVM would shift the scalar first, which takes two more moves: an empty instruction hides what the vector is.
        hidden = ir.InlineAsm(ir.FunctionType(wide.type, [wide.type]), "", "=x,0")
        return self.builder.shl(self.builder.call(hidden, [wide]), constant(wide.type, left))

    def _dot(self, total, weights, quad):
        return call(self.builder, "llvm.x86.avx512.vpdpbusd.256", self.sums, [total, weights, quad])

    def _pair_products(self, total, a, b):
        return self.builder.add(total, call(self.builder, "llvm.x86.avx2.pmadd.wd", self.sums, [a, b]))


class Avx2Dot(AvxVnniDot):
    """Eight rows by `vpmaddubsw`."""

    def __init__(self, builder, max_weight, offset):
        super().__init__(builder, max_weight, offset)
        self.room = 32767 // (2 * max_weight * _ACTIVATION_LIMIT)
        self.signed = self.room == 0
        assert not self.signed or offset == 128, "weights of 8 bits must be stored xor 0x80"
        if self.signed:
            self.offset = 0

    def scale(self, pairs, which):
        """See GenericDot: the scale stands twice, once for each of the two sums that `vpmaddwd` joins."""
        chosen = [i // 2 * 2 + which for i in range(2 * self.rows)]
        mask = ir.Constant(ir.VectorType(I32, len(chosen)), chosen)
        return self.builder.shuffle_vector(pairs, ir.Constant(pairs.type, ir.Undefined), mask)

    def add(self, state, weights, quad_address):
        """See GenericDot."""
        quad = self._broadcast(quad_address, self.bytes)
        if state.room == 0:
            self._widen(state)
        products = self._signed_products(weights, quad) if self.signed else self._products(weights, quad)
        state.narrow = products if state.narrow is None else self.builder.add(state.narrow, products)
        state.room -= 1

    def finish(self, state):
        """See GenericDot."""
        self._widen(state)
        return state.total

    def _products(self, unsigned, signed):
        return call(self.builder, "llvm.x86.avx2.pmadd.ub.sw", self.pairs, [unsigned, signed])

    def _signed_products(self, weights, quad):
        """Move the weight's sign to the activation: |w| * (sign(w) * x), at most 2 * 128 * 127 a pair."""
        signed = self.builder.xor(weights, constant(self.bytes, 128))
        magnitude = call(self.builder, "llvm.abs.v32i8", self.bytes, [signed, ir.Constant(ir.IntType(1), 0)])
        return self._products(magnitude, call(self.builder, "llvm.x86.avx2.psign.b", self.bytes, [quad, signed]))

    def _widen(self, state):
        if state.narrow is not None:
            scale = constant(self.pairs, 1) if state.scale is None else state.scale
            widened = call(self.builder, "llvm.x86.avx2.pmadd.wd", self.sums, [state.narrow, scale])
            state.total = self.builder.add(state.total, widened)
        state.narrow, state.room = None, max(self.room, 1)


def _lanes(table, count):
    """A table of 16 bytes in each 128-bit lane of a vector."""
    return ir.Constant(ir.VectorType(I8, 16 * count), list(table) * count)
