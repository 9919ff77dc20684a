"""The two products of attention over one block of keys and values, for many queries at once.

    scores of a block:   score[lane][token] = sum over d of query[lane][d] * key[token][d]
    values of a block:   sum[lane][d] = sum over tokens of weight[lane][token] * value[token][d]

Both are a sum over i of weights[lane][i] * vectors[i], one fma each in ascending i, so that no bit of a lane depends on
the lanes beside it. Elements become float32 as they are loaded. A lane is one query head of one row. Up to 6 lanes (4
of wide vectors) share each load of a key or value, and columns (tokens or dimensions) are taken in chunks of 16, as
many at once as keep 8 to 16 sums in registers: a multiply-add takes 4 cycles, and processors begin two in each.

Blocks of a sequence lie anywhere, so that the processor cannot guess where the next one begins: the first lanes ask for
its lines while they read this one (measured on Zen 3: 14 instead of 7 GB/s a core from memory).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from kernels.attention.kv_cache import BLOCK_TOKENS, CHUNK, F16, F32, KV_TYPES_BY_NUMBER, SCALED, KvType
from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.simd.halves import half_to_float
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import F32 as FLOAT
from kernels.simd.vectors import I8, I16, I32, I64, fused_multiply_add, load, pointer, splat, store

# By vector width: how many chunks of 16 columns are summed at once for 1, 2, ... lanes; the last is how most lanes run.
_CHUNKS_AT_ONCE = {8: (4, 2, 1, 1, 1, 1), 16: (4, 4, 4, 4)}


@dataclass
class _Sums(ABC):
    """Emits the sums of all lanes over a range of chunks; what is Any is an LLVM value, a step is in bytes."""

    builder: Any
    kind: KvType
    tier: int
    weights: Any
    weight_step: Any  # from lane to lane
    vectors: Any
    distance: Any  # to the vectors that are wanted next
    row_step: Any
    chunk_step: Any
    scales: Any  # of q8_0, behind the vectors
    begin: Any  # of the rows
    end: Any
    output: Any
    output_step: Any  # from lane to lane

    @property
    def width(self):
        """Numbers of a vector."""
        return TIERS_BY_NUMBER[self.tier].lanes

    @abstractmethod
    def _scales(self, i, chunk, start):
        """The scales of q8_0 at row i: numbers that multiply what is loaded."""

    def emit(self, lanes, first_chunk, end_chunk):
        """Emit the loop over full sets of lanes, and code for each number of lanes that may be left."""
        builder, full = self.builder, len(_CHUNKS_AT_ONCE[self.width])
        distance, nothing = self.distance, I64(0)
        rest = builder.urem(lanes, I64(full))
        in_sets = builder.sub(lanes, rest)
        with cgutils.for_range_slice(builder, I64(0), in_sets, I64(full), intp=I64) as (lane, _):
            self.distance = builder.select(builder.icmp_unsigned("==", lane, nothing), distance, nothing)
            self._panels(lane, full, first_chunk, end_chunk)
        self.distance = builder.select(builder.icmp_unsigned("==", in_sets, nothing), distance, nothing)
        for count in range(1, full):
            with builder.if_then(builder.icmp_unsigned("==", rest, I64(count))):
                self._panels(in_sets, count, first_chunk, end_chunk)

    def _panels(self, lane, lanes, first_chunk, end_chunk):
        builder, at_once = self.builder, I64(_CHUNKS_AT_ONCE[self.width][lanes - 1])
        panels = builder.udiv(builder.sub(end_chunk, first_chunk), at_once)
        with cgutils.for_range(builder, panels, intp=I64) as panel:
            chunk = builder.add(first_chunk, builder.mul(panel.index, at_once))
            self._panel(lane, lanes, chunk, at_once.constant)
        if at_once.constant > 1:
            done = builder.add(first_chunk, builder.mul(panels, at_once))
            with cgutils.for_range_slice(builder, done, end_chunk, I64(1), intp=I64) as (chunk, _):
                self._panel(lane, lanes, chunk, 1)

    def _panel(self, lane, lanes, chunk, chunks):
        builder, width = self.builder, self.width
        vector = ir.VectorType(FLOAT, width)
        starts = range(0, chunks * CHUNK, width)
        lane_weights = [self._at(self.weights, lane, index, self.weight_step) for index in range(lanes)]
        sums = [[cgutils.alloca_once(builder, vector) for _ in starts] for _ in range(lanes)]
        for total in (total for of_lane in sums for total in of_lane):
            builder.store(ir.Constant(vector, None), total)
        with cgutils.for_range_slice(builder, self.begin, self.end, I64(1), intp=I64) as (i, _):
            for start in range(0, chunks * CHUNK, CHUNK):
                _prefetch(builder, builder.add(self._address(i, chunk, start), self.distance))
            shared = [self._load(i, chunk, start) for start in starts]
            for of_lane, weights in zip(sums, lane_weights, strict=True):
                weight = splat(builder, load(builder, builder.add(weights, builder.shl(i, I64(2))), FLOAT), width)
                for total, values in zip(of_lane, shared, strict=True):
                    builder.store(fused_multiply_add(builder, weight, values, builder.load(total)), total)
        for index, of_lane in enumerate(sums):
            output = builder.add(self._at(self.output, lane, index, self.output_step), builder.shl(chunk, I64(6)))
            for start, total in zip(starts, of_lane, strict=True):
                store(builder, builder.load(total), builder.add(output, I64(start * 4)))

    def _at(self, base, lane, index, step):
        return self.builder.add(base, self.builder.mul(self.builder.add(lane, I64(index)), step))

    def _address(self, i, chunk, start):
        """Where column `start` of a panel that begins at a chunk stands, in row i."""
        builder = self.builder
        row = builder.add(self.vectors, builder.mul(i, self.row_step))
        at = builder.add(row, builder.mul(builder.add(chunk, I64(start // CHUNK)), self.chunk_step))
        return builder.add(at, I64(start % CHUNK * self.kind.element_bytes))

    def _load(self, i, chunk, start):
        """The float32 values of columns `start` and on of a panel, in row i."""
        builder, address = self.builder, self._address(i, chunk, start)
        if self.kind is F32:
            return load(builder, address, ir.VectorType(FLOAT, self.width))
        if self.kind is F16:
            return half_to_float(builder, load(builder, address, ir.VectorType(I16, self.width)))
        integers = load(builder, address, ir.VectorType(I8, self.width))
        floats = builder.sitofp(integers, ir.VectorType(FLOAT, self.width))
        return builder.fmul(floats, self._scales(i, chunk, start))


def _prefetch(builder, address):
    """Ask for a cache line, into the second level (llvm.prefetch: 0 to read, 2 of 3 in nearness, 1 for data)."""
    function_type = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
    builder.call(function, [pointer(builder, address, I8), I32(0), I32(2), I32(1)])


class _Scores(_Sums):
    """Rows are dimensions, columns tokens."""

    def _scales(self, i, chunk, start):
        builder = self.builder
        group = builder.mul(builder.udiv(i, I64(SCALED)), I64(BLOCK_TOKENS * 4))
        token = builder.add(builder.shl(chunk, I64(6)), I64(start * 4))
        return load(builder, builder.add(self.scales, builder.add(group, token)), ir.VectorType(FLOAT, self.width))


class _Values(_Sums):
    """Rows are tokens, columns dimensions."""

    def _scales(self, i, chunk, start):
        builder = self.builder
        group = builder.udiv(builder.add(chunk, I64(start // CHUNK)), I64(SCALED // CHUNK))
        place = builder.add(builder.mul(group, I64(BLOCK_TOKENS * 4)), builder.shl(i, I64(2)))
        return splat(builder, load(builder, builder.add(self.scales, place), FLOAT), self.width)


@intrinsic(prefer_literal=True)
def score_block(typingctx, queries, lanes, keys, distance, head_dim, first_chunk, end_chunk, scores, kind, tier):
    """Scores of `lanes` queries, float32 [lanes, head_dim], with the chunks' keys, to float32 [lanes, 64].

    distance: bytes from these keys to those that are wanted next, 0 if none are.
    """
    kv_type = KV_TYPES_BY_NUMBER[kind.literal_value]
    size = kv_type.element_bytes

    def codegen(context, builder, signature, arguments):
        queries, lanes, keys, distance, head_dim, first_chunk, end_chunk, scores = arguments[:8]
        sums = _Scores(
            builder=builder,
            kind=kv_type,
            tier=tier.literal_value,
            weights=queries,
            weight_step=builder.mul(head_dim, I64(4)),
            vectors=keys,
            distance=distance,
            row_step=I64(CHUNK * size),
            chunk_step=builder.mul(head_dim, I64(CHUNK * size)),
            scales=builder.add(keys, builder.mul(head_dim, I64(BLOCK_TOKENS * size))),
            begin=I64(0),
            end=head_dim,
            output=scores,
            output_step=I64(BLOCK_TOKENS * 4),
        )
        sums.emit(lanes, first_chunk, end_chunk)
        return context.get_dummy_value()

    u, i = types.uintp, types.int64
    return types.none(u, i, u, i, i, i, i, u, kind, tier), codegen


@intrinsic(prefer_literal=True)
def value_block(typingctx, weights, lanes, values, distance, head_dim, begin, end, outputs, kind, tier):
    """Sums of the values of tokens begin..end-1 by weights, float32 [lanes, 64], to float32 [lanes, head_dim]."""
    kv_type = KV_TYPES_BY_NUMBER[kind.literal_value]
    size = kv_type.element_bytes

    def codegen(context, builder, signature, arguments):
        weights, lanes, values, distance, head_dim, begin, end, outputs = arguments[:8]
        sums = _Values(
            builder=builder,
            kind=kv_type,
            tier=tier.literal_value,
            weights=weights,
            weight_step=I64(BLOCK_TOKENS * 4),
            vectors=values,
            distance=distance,
            row_step=builder.mul(head_dim, I64(size)),
            chunk_step=I64(CHUNK * size),
            scales=builder.add(values, builder.mul(head_dim, I64(BLOCK_TOKENS * size))),
            begin=begin,
            end=end,
            output=outputs,
            output_step=builder.mul(head_dim, I64(4)),
        )
        sums.emit(lanes, I64(0), builder.udiv(head_dim, I64(CHUNK)))
        return context.get_dummy_value()

    u, i = types.uintp, types.int64
    return types.none(u, i, u, i, i, i, i, u, kind, tier), codegen
