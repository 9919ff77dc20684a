"""A program: a forward pass as an array of op records, which threads inside compiled code run segment by segment.

An op record is 256 bytes: the kernel's address, a flag that ends a segment (all its tasks are done before the next op
begins), the kernel's own fields (8 bytes each), and on a cache line of its own the ticket that hands out its tasks.
Threads take tasks as they come; that moves no bit, since a task's result depends on nothing but the task (law 1).

A segment is the ops up to a barrier. A segment is over when its tasks are done, not when every thread has come: a
thread that the system keeps off its core, between tasks, holds up nobody, and skips what was done without it. The
segment's word stands in the barrier op's record: in its low bits how many threads are inside, above them its phase. In
run g a segment goes through three states:

    state    phase    what threads do                    who moves it on, and when
    open     2g       enter, take tasks, leave when      any thread, when its tasks are given out and nobody is inside:
                      none are left                      by one compare-and-swap of the word
    closing  2g + 1   wait                               the thread that closed it, when it has set the tickets to 0
    closed   2g + 2   go on to the next segment          nobody: this is the state `open` of run g + 1

A thread that could not enter waits too. If it went on past a closing segment, it could meet that segment in the next
run before it is open, and close it with its tasks undone.
"""

import time

import numpy as np

from kernels.build.jit import njit_inline
from kernels.build.toolchain import carray, cgutils, intrinsic, ir, types
from kernels.run.atomics import atomic_add, atomic_load, atomic_replace, atomic_store, pause, sched_yield
from kernels.simd.vectors import I32, I64, load, load_i64, pointer

_CLOCK = time.CLOCK_MONOTONIC


@intrinsic
def monotonic_ns(typingctx):
    """Nanoseconds by the clock of Python's `time.monotonic_ns`, clock_gettime(CLOCK_MONOTONIC): some 30 ns a call.

    The processor's cycle counter would have to be calibrated, and may not be read everywhere.
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


OP_BYTES = 256
_TICKET_AT = 192
_SEGMENT_AT = 200
_BARRIER_AT = 8
_FIRST_FIELD_AT = 16
# Spins before a waiting thread offers its core to others: a few tens of microseconds.
SPINS_BEFORE_YIELD = 1 << 10


def op_record(**formats: str) -> np.dtype:
    """Make the record type of one op from its fields' NumPy formats, 8 bytes a field."""
    names = list(formats)
    offsets = [_FIRST_FIELD_AT + 8 * i for i in range(len(names))]
    assert not names or offsets[-1] < _TICKET_AT, "an op record has room for 22 fields"
    return np.dtype(
        {
            "names": ["function", "barrier", *names, "ticket"],
            "formats": ["u8", "i8", *formats.values(), "i8"],
            "offsets": [0, _BARRIER_AT, *offsets, _TICKET_AT],
            "itemsize": OP_BYTES,
        }
    )


class Program:
    """The op records of one forward pass, in order; built once at load."""

    def __init__(self) -> None:
        self._records: list[np.ndarray] = []
        self.names: list[str] = []  # of the ops, for the ledger
        self.layer_ends: list[int] = []  # how many ops there are up to each layer's end
        self._array = np.zeros(0, np.uint8)

    def emit(
        self, dtype: np.dtype, function: int, name: str = "op", /, *, barrier: float = True, **fields: float
    ) -> np.ndarray:
        """Append one op and return its record, which may be changed until `finish`.

        `barrier=False` lets threads go on to the next op before all have finished this one. `name` is the op's kind
        and, after a space, what tells it apart: "matmul blk.3.attn_q.weight Q4_K 2048x2048".
        """
        missing = set(dtype.names or ()) - {"function", "barrier", "ticket"} - set(fields)
        assert not missing, f"fields without a value: {missing}"
        record = np.zeros(1, dtype)
        record["function"], record["barrier"] = function, barrier
        for field, value in fields.items():
            record[field] = value
        self._records.append(record)
        self.names.append(name)
        return record

    def finish(self) -> "Program":
        """Lay the records out for running."""
        assert self._records and self._records[-1]["barrier"][0], "the last op needs a barrier"
        # Aligned by hand: a ticket must not share its cache line with a neighbour.
        self._array = np.zeros(len(self._records) * OP_BYTES + 64, np.uint8)
        start = -self._array.ctypes.data % 64
        joined = np.concatenate([record.view(np.uint8) for record in self._records])
        self._array[start : start + len(joined)] = joined
        self.address = self._array.ctypes.data + start
        return self

    def part(self, first: int, end: int) -> "Program":
        """Ops first..end-1 of a finished program as one of their own, which uses the same records.

        The last of them must have a barrier. Every op of the whole must run equally often before the whole runs again.
        """
        part = Program()
        part._records, part.names, part._array = self._records[first:end], self.names[first:end], self._array
        part.address = self.address + first * OP_BYTES
        return part

    def __len__(self) -> int:
        return len(self._records)


@intrinsic
def _as_void_pointer(typingctx, address):
    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uintp), codegen


@njit_inline
def record_at(address, dtype):
    """View the record of type `dtype` at an address."""
    return carray(_as_void_pointer(address), 1, dtype)[0]


@njit_inline
def array_at(address, shape, dtype):
    """View the array of this shape, in C's order, at an address."""
    return carray(_as_void_pointer(address), shape, dtype)


@njit_inline
def claim_task(op):
    """Take the next task of the op at this address; the caller stops when it is past the op's last."""
    return atomic_add(op + np.uintp(_TICKET_AT), 1)


@intrinsic
def _call_kernel(typingctx, function, op, thread, threads):
    def codegen(context, builder, signature, arguments):
        function_type = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
        builder.call(pointer(builder, arguments[0], function_type), arguments[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, types.uintp, types.int64, types.int64), codegen


# A tile function: (op, three numbers that the op deals out).
TILE_SIGNATURE = "void(uintp, int64, int64, int64)"


@intrinsic
def call_tile(typingctx, function, op, first, second, third):
    """Call the tile function at an address."""

    def codegen(context, builder, signature, arguments):
        function_type = ir.FunctionType(ir.VoidType(), [I64, I64, I64, I64])
        builder.call(pointer(builder, arguments[0], function_type), arguments[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, types.uintp, types.int64, types.int64, types.int64), codegen


@intrinsic
def _load_address(typingctx, address):
    def codegen(context, builder, signature, arguments):
        return load(builder, arguments[0], I64)

    return types.uintp(types.uintp), codegen


_PHASE_SHIFT = 20  # of the phase in a segment's word


@njit_inline
def first_phase(program):
    """The phase in which a program's segments are open in its next run; nobody may be running it."""
    op = program
    while load_i64(op + np.uintp(_BARRIER_AT)) == 0:
        op += np.uintp(OP_BYTES)
    return atomic_load(op + np.uintp(_SEGMENT_AT)) >> _PHASE_SHIFT


@njit_inline
def _segment_end(program, first):
    """The barrier op that ends the segment of op `first`."""
    end = first
    while load_i64(program + np.uintp(end * OP_BYTES + _BARRIER_AT)) == 0:
        end += 1
    return end


@njit_inline
def _enter(word, phase):
    """Enter an open segment; False where the segment is closing or closed: the others have done its tasks."""
    if atomic_add(word, 1) >> _PHASE_SHIFT == phase:
        return True
    atomic_add(word, -1)
    return False


@njit_inline
def _pass(program, first, end, word, phase):
    """Return once a segment is closed; close it if its tasks are done and nobody is inside."""
    spins = 0
    while atomic_load(word) >> _PHASE_SHIFT <= phase + 1:
        if atomic_replace(word, phase << _PHASE_SHIFT, (phase + 1) << _PHASE_SHIFT):
            for op in range(first, end + 1):
                atomic_store(0, program + np.uintp(op * OP_BYTES + _TICKET_AT))
            atomic_add(word, 1 << _PHASE_SHIFT)
            return
        pause()
        spins += 1
        if spins >= SPINS_BEFORE_YIELD:
            sched_yield()
            spins = 0


@njit_inline
def run_ops(program, count, phase, thread, threads):
    """Take part in a run: ops 0..count-1, segment by segment."""
    first = 0
    while first < count:
        end = _segment_end(program, first)
        word = program + np.uintp(end * OP_BYTES + _SEGMENT_AT)
        if _enter(word, phase):
            for i in range(first, end + 1):
                op = program + np.uintp(i * OP_BYTES)
                _call_kernel(_load_address(op), op, thread, threads)
            atomic_add(word, -1)
        _pass(program, first, end, word, phase)
        first = end + 1


@njit_inline
def run_ops_timed(program, count, phase, threads, times):
    """Like `run_ops` for thread 0; adds to int64 times[op, 0] the ns of its work, to times[op, 1] those of its wait."""
    first = 0
    now = monotonic_ns()
    while first < count:
        end = _segment_end(program, first)
        word = program + np.uintp(end * OP_BYTES + _SEGMENT_AT)
        if _enter(word, phase):
            for i in range(first, end + 1):
                op = program + np.uintp(i * OP_BYTES)
                _call_kernel(_load_address(op), op, 0, threads)
                worked = monotonic_ns()
                times[i, 0] += worked - now
                now = worked
            atomic_add(word, -1)
        _pass(program, first, end, word, phase)
        waited = monotonic_ns()
        times[end, 1] += waited - now
        now = waited
        first = end + 1
