"""SIMD value types for Numba: kernels are written over vectors, and LLVM turns each into what the processor has.

A value type (`f32x16`, `i32x16`, `f32x8`) is an opaque Numba type whose data model is an LLVM vector. Its operations
are intrinsics, so a kernel reads like mathematics and every lowering does the same operations in the same order.
Addresses are plain integers (`uintp`), as the op records hold them; loads and stores need no alignment.
"""

import operator

from kernels.build.toolchain import cgutils, intrinsic, ir, models, overload, register_model, types

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


class VectorType(types.Type):
    """`lanes` numbers of one LLVM element type, held in registers."""

    def __init__(self, name, element, lanes):
        self.llvm = ir.VectorType(element, lanes)
        self.lanes = lanes
        super().__init__(name=name)


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """A vector is one LLVM value."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, fe_type.llvm)


f32x16 = VectorType("f32x16", F32, 16)
f32x8 = VectorType("f32x8", F32, 8)
i32x16 = VectorType("i32x16", I32, 16)
FLOATS_BY_LANES = {16: f32x16, 8: f32x8}


# --- building blocks of code generation, used by every intrinsic ---


def pointer(builder, address, llvm_type):
    """Turn an integer address into a pointer to `llvm_type`."""
    return builder.inttoptr(address, llvm_type.as_pointer())


def load(builder, address, llvm_type):
    """Load one (possibly unaligned) value."""
    value = builder.load(pointer(builder, address, llvm_type), align=1)
    value.align = 1
    return value


def store(builder, value, address):
    """Store one value at a (possibly unaligned) address."""
    builder.store(value, pointer(builder, address, value.type), align=1)


def call(builder, name, result, arguments):
    """Call an LLVM intrinsic by name."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)


def splat(builder, scalar, lanes):
    """Fill a vector with one scalar."""
    vector = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
    return builder.shuffle_vector(
        first, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    )


def constant(llvm_vector, number):
    """A vector constant with one number in every lane."""
    return ir.Constant(llvm_vector, [number] * llvm_vector.count)


def prefetch(builder, address, count):
    """Ask for `count` cache lines from an address on; it may lie beyond what is mapped."""
    level = [I32(0), I32(3), I32(1)]  # for reading, into the nearest cache, data
    for line in range(count):
        place = builder.inttoptr(builder.add(address, I64(64 * line)), ir.PointerType())
        call(builder, "llvm.prefetch.p0", ir.VoidType(), [place, *level])


def stack_array(builder, llvm_type):
    """Room on the stack, not initialized; cgutils.alloca_once would store zeros, which LLVM takes apart one by one."""
    with builder.goto_entry_block():
        return builder.alloca(llvm_type)


def fused_multiply_add(builder, a, b, c):
    """a * b + c with one rounding."""
    return call(builder, f"llvm.fma.v{a.type.count}f32", a.type, [a, b, c])


def _suffix(vector):
    return f"v{vector.llvm.count}f32"


# --- memory ---


@intrinsic
def load_f32x16(typingctx, address):
    """Load 16 float32."""

    def codegen(context, builder, signature, arguments):
        return load(builder, arguments[0], f32x16.llvm)

    return f32x16(types.uintp), codegen


@intrinsic
def store_vector(typingctx, value, address):
    """Store a vector as it is."""

    def codegen(context, builder, signature, arguments):
        store(builder, arguments[0], arguments[1])
        return context.get_dummy_value()

    return types.none(value, types.uintp), codegen


def _scalar_load(llvm_type, numba_type):
    @intrinsic
    def load_scalar(typingctx, address):
        def codegen(context, builder, signature, arguments):
            return load(builder, arguments[0], llvm_type)

        return numba_type(types.uintp), codegen

    return load_scalar


def _scalar_store(llvm_type, numba_type):
    @intrinsic
    def store_scalar(typingctx, value, address):
        def codegen(context, builder, signature, arguments):
            store(builder, arguments[0], arguments[1])
            return context.get_dummy_value()

        return types.none(numba_type, types.uintp), codegen

    return store_scalar


load_f32 = _scalar_load(F32, types.float32)
load_i32 = _scalar_load(I32, types.int32)
load_i64 = _scalar_load(I64, types.int64)
store_f32 = _scalar_store(F32, types.float32)
store_i16 = _scalar_store(I16, types.int16)
store_i32 = _scalar_store(I32, types.int32)
store_i64 = _scalar_store(I64, types.int64)


@intrinsic
def store_quads_i8(typingctx, value, address, stride):
    """Store 16 int32 that fit in int8 as four groups of 4 bytes, `stride` bytes apart."""

    def codegen(context, builder, signature, arguments):
        value, address, stride = arguments
        quads = builder.bitcast(builder.trunc(value, ir.VectorType(I8, 16)), ir.VectorType(I32, 4))
        for i in range(4):
            store(builder, builder.extract_element(quads, I32(i)), builder.add(address, builder.mul(stride, I64(i))))
        return context.get_dummy_value()

    return types.none(i32x16, types.uintp, types.uintp), codegen


@intrinsic
def store_strided_f32(typingctx, value, address, stride):
    """Store 16 float32, `stride` bytes apart."""

    def codegen(context, builder, signature, arguments):
        value, address, stride = arguments
        for i in range(16):
            store(builder, builder.extract_element(value, I32(i)), builder.add(address, builder.mul(stride, I64(i))))
        return context.get_dummy_value()

    return types.none(f32x16, types.uintp, types.uintp), codegen


# --- arithmetic ---


@intrinsic
def splat_f32x16(typingctx, scalar):
    """Fill 16 lanes with one float32."""

    def codegen(context, builder, signature, arguments):
        return splat(builder, arguments[0], 16)

    return f32x16(types.float32), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c with one rounding, in each lane."""

    def codegen(context, builder, signature, arguments):
        return fused_multiply_add(builder, *arguments)

    return f32x16(f32x16, f32x16, f32x16), codegen


def _binary(emit, vector):
    @intrinsic
    def operation(typingctx, a, b):
        def codegen(context, builder, signature, arguments):
            return emit(builder, *arguments)

        return vector(vector, vector), codegen

    return operation


add_i32x16 = _binary(lambda builder, a, b: builder.add(a, b), i32x16)


def _select_greater(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


# Not llvm.maxnum: what that does with signed zeros differs between machines.
maximum = _binary(_select_greater, f32x16)


def _give_operator(operation, emit):
    """Have two f32x16 between which `operation` stands be computed by `emit`."""
    implementation = _binary(emit, f32x16)

    @overload(operation)
    def overload_operation(a, b):
        if a is f32x16 and b is f32x16:
            return lambda a, b: implementation(a, b)
        return None


_give_operator(operator.add, lambda builder, a, b: builder.fadd(a, b))
_give_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_give_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_give_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))


def _unary(emit, operand, result):
    @intrinsic
    def operation(typingctx, a):
        def codegen(context, builder, signature, arguments):
            return emit(builder, arguments[0])

        return result(operand), codegen

    return operation


def _zero_for_nan(builder, a):
    zero = constant(f32x16.llvm, 0.0)
    return builder.select(builder.fcmp_ordered("ord", a, zero), a, zero)


def _round_to_i32(builder, a):
    return builder.fptosi(call(builder, f"llvm.rint.{_suffix(f32x16)}", f32x16.llvm, [a]), i32x16.llvm)


def _upper_plane(builder, q):
    return builder.ashr(builder.add(q, constant(i32x16.llvm, 64)), constant(i32x16.llvm, 7))


def _lower_plane(builder, q):
    return builder.sub(q, builder.shl(_upper_plane(builder, q), constant(i32x16.llvm, 7)))


def _power_of_two(builder, exponent):
    biased = builder.add(exponent, constant(i32x16.llvm, 127))
    return builder.bitcast(builder.shl(biased, constant(i32x16.llvm, 23)), f32x16.llvm)


# |a|.
absolute = _unary(lambda builder, a: call(builder, f"llvm.fabs.{_suffix(f32x16)}", a.type, [a]), f32x16, f32x16)
# Each lane as it is, but 0 where it is NaN.
zero_for_nan = _unary(_zero_for_nan, f32x16, f32x16)
# The nearest integer, ties to even; values must be numbers within int32.
round_to_i32 = _unary(_round_to_i32, f32x16, i32x16)
# high and low of q = 128 * high + low with low in [-64, 63].
upper_plane = _unary(_upper_plane, i32x16, i32x16)
lower_plane = _unary(_lower_plane, i32x16, i32x16)
# Rounded to nearest.
to_f32x16 = _unary(lambda builder, a: builder.sitofp(a, f32x16.llvm), i32x16, f32x16)
# 2 ** exponent for exponents in [-126, 127], by building the float's bits.
power_of_two = _unary(_power_of_two, i32x16, f32x16)


@intrinsic
def select_below(typingctx, a, limit, if_below, otherwise):
    """`if_below` where a < limit, else `otherwise` (also where a is NaN), in each lane."""

    def codegen(context, builder, signature, arguments):
        a, limit, if_below, otherwise = arguments
        return builder.select(builder.fcmp_ordered("<", a, limit), if_below, otherwise)

    return f32x16(f32x16, f32x16, f32x16, f32x16), codegen


@intrinsic
def keep_first(typingctx, a, count, filler):
    """Lanes below `count` (int32, any value) from `a`, the others from `filler`."""

    def codegen(context, builder, signature, arguments):
        a, count, filler = arguments
        index = ir.Constant(i32x16.llvm, list(range(16)))
        return builder.select(builder.icmp_signed("<", index, splat(builder, count, 16)), a, filler)

    return f32x16(f32x16, types.int32, f32x16), codegen


# --- reductions: a fixed tree, so that there is one order (law 3) ---


def _lanes(builder, value, first, count):
    places = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), places)


def _tree(combine, vector, scalar):
    @intrinsic
    def reduce(typingctx, a):
        def codegen(context, builder, signature, arguments):
            value, lanes = arguments[0], 16
            while lanes > 1:
                lanes //= 2
                value = combine(builder, _lanes(builder, value, 0, lanes), _lanes(builder, value, lanes, lanes))
            return builder.extract_element(value, I32(0))

        return scalar(vector), codegen

    return reduce


reduce_add = _tree(lambda builder, a, b: builder.fadd(a, b), f32x16, types.float32)
reduce_max = _tree(_select_greater, f32x16, types.float32)
reduce_add_i32 = _tree(lambda builder, a, b: builder.add(a, b), i32x16, types.int32)
