"""The clock of compiled code: the same one as Python's `time.monotonic_ns`."""

import time

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.simd.vectors import I32, I64

_CLOCK = time.CLOCK_MONOTONIC


@intrinsic
def monotonic_ns(typingctx):
    """Nanoseconds since some moment, by clock_gettime(CLOCK_MONOTONIC) of the C library: some 30 ns a call.

    Not the processor's cycle counter, which would have to be calibrated, and may not be read everywhere.
    """

    def codegen(context, builder, signature, arguments):
        timespec = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))  # seconds, nanoseconds
        function_type = ir.FunctionType(I32, [I32, timespec.type])
        builder.call(
            cgutils.get_or_insert_function(builder.module, function_type, "clock_gettime"), [I32(_CLOCK), timespec]
        )
        seconds, rest = cgutils.unpack_tuple(builder, builder.load(timespec), 2)
        return builder.add(builder.mul(seconds, I64(1_000_000_000)), rest)

    return types.int64(), codegen
