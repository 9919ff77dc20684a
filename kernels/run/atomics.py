"""Atomic words, pausing and sleeping: what threads inside compiled code need to meet each other."""

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.simd.vectors import I32, I64, call, pointer


@intrinsic
def atomic_add(typingctx, address, amount):
    """Add to an int64 and return its old value; sequentially consistent."""

    def codegen(context, builder, signature, arguments):
        return builder.atomic_rmw("add", pointer(builder, arguments[0], I64), arguments[1], "seq_cst")

    return types.int64(types.uintp, types.int64), codegen


@intrinsic
def atomic_exchange(typingctx, address, value):
    """Store an int64 and return its old value; sequentially consistent."""

    def codegen(context, builder, signature, arguments):
        return builder.atomic_rmw("xchg", pointer(builder, arguments[0], I64), arguments[1], "seq_cst")

    return types.int64(types.uintp, types.int64), codegen


@intrinsic
def atomic_load(typingctx, address):
    """Load an int64; sequentially consistent."""

    def codegen(context, builder, signature, arguments):
        return builder.load_atomic(pointer(builder, arguments[0], I64), "seq_cst", 8)

    return types.int64(types.uintp), codegen


@intrinsic
def atomic_store(typingctx, value, address):
    """Store an int64; sequentially consistent."""

    def codegen(context, builder, signature, arguments):
        builder.store_atomic(arguments[0], pointer(builder, arguments[1], I64), "seq_cst", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.uintp), codegen


@intrinsic
def atomic_replace(typingctx, address, expected, value):
    """Store an int64 where the word holds `expected`, else nothing; tells whether it did; sequentially consistent."""

    def codegen(context, builder, signature, arguments):
        address, expected, value = arguments
        pair = builder.cmpxchg(pointer(builder, address, I64), expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.uintp, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Tell the processor that this is a spin loop; nothing on processors without such a hint."""

    def codegen(context, builder, signature, arguments):
        if builder.module.triple.startswith(("x86_64", "i686")):
            call(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        return context.get_dummy_value()

    return types.none(), codegen


def _libc(name, has_argument):
    """Wrap `int name(void)` or `int name(void *)` of the C library."""

    def codegen(context, builder, signature, arguments):
        parameters = [I64] if has_argument else []
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, parameters), name)
        return builder.call(function, arguments)

    return codegen


@intrinsic
def sched_yield(typingctx):
    """Let another thread of the system run (POSIX sched_yield)."""
    return types.int32(), _libc("sched_yield", has_argument=False)


@intrinsic
def semaphore_wait(typingctx, semaphore):
    """Sleep until the POSIX semaphore at this address can be taken; -1 where a signal came first."""
    return types.int32(types.uintp), _libc("sem_wait", has_argument=True)


@intrinsic
def semaphore_post(typingctx, semaphore):
    """Wake one sleeper of the POSIX semaphore at this address."""
    return types.int32(types.uintp), _libc("sem_post", has_argument=True)
