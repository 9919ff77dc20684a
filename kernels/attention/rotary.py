"""Biases, head norms and rotary positions of queries and keys, and the writing of keys and values into their blocks.

Of a row's heads: first biases are added, then queries and keys are normalized head by head (RMSNorm), each where the
model has it. Then they turn: for each pair (a, b) of a head and angle t = position * frequency,

    (a, b) -> (a cos t - b sin t, a sin t + b cos t)

Pair i is (2i, 2i + 1), llama's order in GGUF, or (i, i + rotary_dim / 2), the order of GPT-NeoX. Dimensions from
rotary_dim on stay. Queries are also multiplied by the attention's scale. Source: Su et al., RoFormer (2021), section
3.4.2.

Then the row's keys and values go to their block, in the type of the cache (layouts in kv_cache.py). q8_0 takes the
scale max|x| / 127 for each 32 dimensions and rounds x / scale to the nearest integer, ties to even. A scale in the
subnormal range has no finite inverse; such values count as zero. Values that are not finite stay visible: f16 and f32
keep them, q8_0 gives their group a scale that is NaN or infinite.
"""

from typing import Any

import numpy as np

from kernels.attention.kv_cache import BLOCK_TOKENS, CHUNK, F16, F32, GROUP, KV_TYPES_BY_NUMBER, SCALED, STEP
from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.matmul.row_ops import normalize
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.halves import float_to_half
from kernels.simd.vectors import (
    I8,
    I32,
    I64,
    absolute,
    f32x16,
    fma,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    maximum,
    reduce_add,
    reduce_max,
    round_to_i32,
    splat_f32x16,
    store,
    store_f32,
    store_vector,
    to_f32x16,
    zero_for_nan,
)

_SMALLEST_NORMAL = np.float32(1.1754944e-38)


@intrinsic(prefer_literal=True)
def store_elements(typingctx, value, address, stride, kind):
    """Store 16 float32 as elements of a KV type, `stride` elements apart; for q8_0 they are whole numbers already."""
    kv_type, step = KV_TYPES_BY_NUMBER[kind.literal_value], stride.literal_value

    def codegen(context, builder, signature, arguments):
        value, address = arguments[:2]
        if kv_type is F16:
            value = float_to_half(builder, value)
        elif kv_type is not F32:
            value = builder.fptosi(value, ir.VectorType(I8, 16))
        if step == 1:
            store(builder, value, address)
        else:
            for i in range(16):
                place = builder.add(address, I64(i * step * kv_type.element_bytes))
                store(builder, builder.extract_element(value, I32(i)), place)
        return context.get_dummy_value()

    return types.none(f32x16, types.uintp, stride, kind), codegen


@njit_inline
def scale_of(source, count):
    """The q8_0 scale of `count` (16 or 32) float32."""
    a = load_f32x16(source)
    b = load_f32x16(source + np.uintp(64)) if count > 16 else splat_f32x16(np.float32(0))
    energy = reduce_add(fma(a, a, b * b))
    # The maximum passes over what is no number.
    return np.float32(np.nan) if energy != energy else reduce_max(maximum(absolute(a), absolute(b))) / np.float32(127)


@njit_inline
def divided(value, scale):
    """The whole numbers round(value / scale) of 16 float32."""
    inverse = np.float32(1) / scale if scale > _SMALLEST_NORMAL else np.float32(0)
    return to_f32x16(round_to_i32(zero_for_nan(value * splat_f32x16(inverse))))


NEIGHBOURS, HALVES = 0, 1  # values of `pairing`

ROTARY = op_record(
    step="u8",  # address of the step record
    group="u8",  # address of the record of the layer's group
    gated="u8",  # float32 [rows, heads * 2 * head_dim], each head's query and its gate; 0: `query` has what is rotated
    query="u8",  # float32 [rows, heads * head_dim], rotated in place
    key="u8",  # float32 [rows, kv_heads * head_dim], rotated in place
    value="u8",  # float32 [rows, kv_heads * head_dim]
    biases="u8",  # float32 [heads + kv_heads + kv_heads, head_dim], of queries, keys and values; 0: none
    norms="u8",  # float32 [2, head_dim], of queries and of keys; 0: none
    epsilon="f4",  # of the norms
    heads="i8",
    kv_heads="i8",
    head_dim="i8",
    rotary_dim="i8",  # dimensions that turn, an even number; the rest stay
    pairing="i8",
    scale="f4",
    angles="u8",  # float32 [context, rotary_dim]: cos, sin of each pair
    keys="u8",
    values="u8",  # the layer's blocks
    block_bytes="i8",  # of one head
)


@njit_inline
def _turn(head, angles, rotary_dim, pairing):
    """Turn one head in place."""
    step, distance = (2, 1) if pairing == NEIGHBOURS else (1, rotary_dim // 2)
    for pair in range(rotary_dim // 2):
        cosine = load_f32(angles + np.uintp(pair * 8))
        sine = load_f32(angles + np.uintp(pair * 8 + 4))
        first = head + np.uintp(pair * step * 4)
        second = first + np.uintp(distance * 4)
        a, b = load_f32(first), load_f32(second)
        store_f32(a * cosine - b * sine, first)
        store_f32(a * sine + b * cosine, second)


@njit_inline
def _take_queries(rotary, row, query):
    """Copy the queries of one row from between their gates."""
    head_bytes = rotary.head_dim * 4
    for head in range(rotary.heads):
        source = np.uintp(rotary.gated) + np.uintp((row * rotary.heads + head) * 2 * head_bytes)
        for offset in range(0, head_bytes, 64):
            store_vector(load_f32x16(source + np.uintp(offset)), query + np.uintp(head * head_bytes + offset))


@njit_inline
def _add(rows, biases, floats):
    for offset in range(0, floats * 4, 64):
        place = rows + np.uintp(offset)
        store_vector(load_f32x16(place) + load_f32x16(biases + np.uintp(offset)), place)


@njit_inline
def _add_biases(rotary, query, key, value):
    """Add to the heads of one row."""
    query_floats, kv_floats = rotary.heads * rotary.head_dim, rotary.kv_heads * rotary.head_dim
    biases = np.uintp(rotary.biases)
    _add(query, biases, query_floats)
    _add(key, biases + np.uintp(query_floats * 4), kv_floats)
    _add(value, biases + np.uintp((query_floats + kv_floats) * 4), kv_floats)


@njit_inline
def _normalize_heads(rotary, query, key):
    """Normalize the heads of one row in place."""
    head_bytes = rotary.head_dim * 4
    norms = np.uintp(rotary.norms)
    for head in range(rotary.heads):
        place = query + np.uintp(head * head_bytes)
        normalize(place, norms, rotary.head_dim, rotary.epsilon, place)
    for head in range(rotary.kv_heads):
        place = key + np.uintp(head * head_bytes)
        normalize(place, norms + np.uintp(head_bytes), rotary.head_dim, rotary.epsilon, place)


@njit_inline
def _multiply(head, dim, scale):
    for offset in range(0, dim * 4, 64):
        place = head + np.uintp(offset)
        store_vector(load_f32x16(place) * splat_f32x16(scale), place)


@kernel(KERNEL_SIGNATURE)
def rotary_kernel(kind: int) -> Any:
    """Compile the op for a type of keys and values (KvType.number); a task is one row."""
    size, scaled = KV_TYPES_BY_NUMBER[kind].element_bytes, int(KV_TYPES_BY_NUMBER[kind].scaled)

    def rotary_op(op, thread, threads):
        rotary = record_at(op, ROTARY)
        step, group = record_at(np.uintp(rotary.step), STEP), record_at(np.uintp(rotary.group), GROUP)
        heads, kv_heads, dim, turning = rotary.heads, rotary.kv_heads, rotary.head_dim, rotary.rotary_dim
        while True:
            row = claim_task(op)
            if row >= step.rows:
                return
            position = load_i64(np.uintp(step.positions) + np.uintp(row * 8))
            table = np.uintp(load_i64(np.uintp(group.tables) + np.uintp(row * 8)))
            block = np.int64(load_i32(table + np.uintp(position // BLOCK_TOKENS * 4)))
            place = position % BLOCK_TOKENS
            angles = np.uintp(rotary.angles) + np.uintp(position * turning * 4)
            queries = np.uintp(rotary.query) + np.uintp(row * heads * dim * 4)
            kv_offset = np.uintp(row * kv_heads * dim * 4)
            row_keys, row_values = np.uintp(rotary.key) + kv_offset, np.uintp(rotary.value) + kv_offset
            if rotary.gated != 0:
                _take_queries(rotary, row, queries)
            if rotary.biases != 0:
                _add_biases(rotary, queries, row_keys, row_values)
            if rotary.norms != 0:
                _normalize_heads(rotary, queries, row_keys)
            for head in range(heads):
                query = queries + np.uintp(head * dim * 4)
                _turn(query, angles, turning, rotary.pairing)
                _multiply(query, dim, rotary.scale)
            for head in range(kv_heads):
                offset = np.uintp(head * dim * 4)
                key, value = row_keys + offset, row_values + offset
                _turn(key, angles, turning, rotary.pairing)
                home = np.uintp((block * kv_heads + head) * rotary.block_bytes)
                keys, values = np.uintp(rotary.keys) + home, np.uintp(rotary.values) + home
                key_at = keys + np.uintp((place // CHUNK * dim * CHUNK + place % CHUNK) * size)
                value_at = values + np.uintp(place * dim * size)
                for dimension in range(0, dim, CHUNK):
                    a, b = load_f32x16(key + np.uintp(dimension * 4)), load_f32x16(value + np.uintp(dimension * 4))
                    if scaled:
                        first = dimension // SCALED * SCALED
                        count, source = min(SCALED, dim - first), np.uintp(first * 4)
                        key_scale, value_scale = scale_of(key + source, count), scale_of(value + source, count)
                        scale_at = np.uintp(BLOCK_TOKENS * dim + (first // SCALED * BLOCK_TOKENS + place) * 4)
                        store_f32(key_scale, keys + scale_at)
                        store_f32(value_scale, values + scale_at)
                        a, b = divided(a, key_scale), divided(b, value_scale)
                    store_elements(a, key_at + np.uintp(dimension * CHUNK * size), CHUNK, kind)
                    store_elements(b, value_at + np.uintp(dimension * size), 1, kind)

    return rotary_op
