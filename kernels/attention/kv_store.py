"""Writing one token's key or value of one head into its block, in the type of the cache (layouts in kv_cache.py).

q8_0 takes the scale max|x| / 127 for each 32 dimensions and rounds x / scale to the nearest integer, ties to even. A
scale in the subnormal range has no finite inverse; such values count as zero. Values that are not finite stay visible:
f16 and f32 keep them, q8_0 gives its group a scale that is no number or infinite.
"""

import numpy as np

from kernels.attention.kv_cache import F16, F32, KV_TYPES_BY_NUMBER
from kernels.build.jit import njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.run.cpu import TIER_NUMBERS
from kernels.simd.halves import float_to_half
from kernels.simd.vectors import (
    I8,
    I32,
    I64,
    absolute,
    f32x16,
    fma,
    load_f32x16,
    maximum,
    reduce_add,
    reduce_max,
    round_to_i32,
    splat_f32x16,
    store,
    to_f32x16,
    zero_for_nan,
)

_SMALLEST_NORMAL = np.float32(1.1754944e-38)


@intrinsic(prefer_literal=True)
def store_elements(typingctx, value, address, stride, kind, tier):
    """Store 16 float32 as elements of a KV type, `stride` elements apart; for q8_0 they are whole numbers already."""
    kv_type, step = KV_TYPES_BY_NUMBER[kind.literal_value], stride.literal_value
    native = tier.literal_value != TIER_NUMBERS["generic"]

    def codegen(context, builder, signature, arguments):
        value, address = arguments[:2]
        if kv_type is F16:
            value = float_to_half(builder, value, native)
        elif kv_type is not F32:
            value = builder.fptosi(value, ir.VectorType(I8, 16))
        if step == 1:
            store(builder, value, address)
        else:
            for i in range(16):
                place = builder.add(address, I64(i * step * kv_type.element_bytes))
                store(builder, builder.extract_element(value, I32(i)), place)
        return context.get_dummy_value()

    return types.none(f32x16, types.uintp, stride, kind, tier), codegen


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
