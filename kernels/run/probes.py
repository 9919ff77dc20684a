"""Measures the most that a team's threads can do: how fast they read memory, and how fast they multiply and add.

Memory is the limit of decoding for one user. Each thread takes blocks of 1 MiB and sums them with eight accumulators,
as wide as the processor loads. The memory should be a few times the last-level cache, or the cache is measured.

Arithmetic: int8 dot products of a tier, or f32 fma. A thread repeats one step over operands in its first-level cache:
along k, each of two vectors of weights times each of five broadcast activations, into ten sums. That is work enough to
hide the units' latency, and it fits in 16 registers. Nothing is unpacked or scaled. Dot products are those of dot.py
with weights of 4 bits: on AVX2 int16 takes as many products as it may before they are widened, and AMX is measured by
`vpdpbusd`, not by matrix tiles. Rates are operations a second; a multiplication and its addition count as two.
"""

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, address, kernel
from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.machine.memory import address_of, zeroed
from kernels.run.program import Program, claim_task, op_record, record_at
from kernels.run.team import Team
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import (
    F32,
    FLOATS_BY_LANES,
    I64,
    VectorType,
    fused_multiply_add,
    load,
    load_f32x16,
    reduce_add,
    splat,
    splat_f32x16,
    store,
    store_f32,
)

_BLOCK = 1 << 20
READ = op_record(buffer="u8", blocks="i8", sums="u8")


@kernel(KERNEL_SIGNATURE)
def read_kernel() -> Any:
    """Compile the op that reads."""

    def read_op(op, thread, threads):
        read = record_at(op, READ)
        zero = splat_f32x16(np.float32(0))
        a, b, c, d = zero, zero, zero, zero
        e, f, g, h = zero, zero, zero, zero
        while True:
            block = claim_task(op)
            if block >= read.blocks:
                total = reduce_add(((a + b) + (c + d)) + ((e + f) + (g + h)))
                store_f32(total, np.uintp(read.sums) + np.uintp(thread * 64))
                return
            start = np.uintp(read.buffer) + np.uintp(block * 1048576)
            for offset in range(0, 1048576, 512):
                place = start + np.uintp(offset)
                a, b = a + load_f32x16(place), b + load_f32x16(place + np.uintp(64))
                c, d = c + load_f32x16(place + np.uintp(128)), d + load_f32x16(place + np.uintp(192))
                e, f = e + load_f32x16(place + np.uintp(256)), f + load_f32x16(place + np.uintp(320))
                g, h = g + load_f32x16(place + np.uintp(384)), h + load_f32x16(place + np.uintp(448))

    return read_op


class ReadProbe:
    """Memory of `megabytes` MiB, and the program by which a team reads it.

    It is the beginning of the memory that is given, where that is large enough, and memory of its own otherwise.
    """

    def __init__(self, team: Team, megabytes: int, memory: Sequence[np.ndarray] = ()) -> None:
        self._team = team
        self._sums = np.zeros(team.threads * 16, np.float32)
        if sum(_blocks(buffer) for buffer in memory) < megabytes:
            own = zeroed((megabytes * _BLOCK,), np.uint8)
            own[::4096] = 0  # make every page real: unwritten ones all share one page of zeros
            memory = [own]
        self._memory = memory  # kept alive
        self._bytes = megabytes * _BLOCK
        self._program = Program()
        for buffer in memory:
            blocks = min(_blocks(buffer), megabytes)
            if blocks == 0:
                continue
            megabytes -= blocks
            self._program.emit(
                READ, address(read_kernel()), buffer=address_of(buffer), blocks=blocks, sums=self._sums.ctypes.data
            )
        self._program.finish()

    def measure(self) -> float:
        """Read it once; returns bytes a second."""
        begin = time.perf_counter()
        self._team.run(self._program)
        return self._bytes / (time.perf_counter() - begin)


def _blocks(buffer: np.ndarray) -> int:
    return buffer.nbytes // _BLOCK


def read_bandwidth(team: Team, megabytes: int = 256, repeats: int = 5, memory: Sequence[np.ndarray] = ()) -> float:
    """Return the median read bandwidth of a team in bytes a second over `megabytes` MiB: see ReadProbe."""
    probe = ReadProbe(team, megabytes, memory)
    return float(np.median([probe.measure() for _ in range(repeats + 1)][1:]))


PEAK = op_record(operands="u8", sums="u8", steps="i8")
_WEIGHTS, _ACTIVATIONS = 2, 5
_DEPTH = 32  # products a step for each sum
_STEPS = 1 << 14  # of one measurement: some ten milliseconds
_THREAD_BYTES = 16384  # of operands, and of sums, for each thread


@functools.cache
def _sum_type(tier, floats):
    rows = TIERS_BY_NUMBER[tier].dot.rows
    sums = TIERS_BY_NUMBER[tier].dot(None, 15, 0).sums
    return FLOATS_BY_LANES[rows] if floats else VectorType(f"i32x{rows}", sums.element, rows)


@intrinsic(prefer_literal=True)
def _zero_sums(typingctx, tier, floats):
    kind = types.UniTuple(_sum_type(tier.literal_value, floats.literal_value), _WEIGHTS * _ACTIVATIONS)

    def codegen(context, builder, signature, arguments):
        return cgutils.pack_array(builder, [ir.Constant(kind.dtype.llvm, None)] * kind.count)

    return kind(tier, floats), codegen


@intrinsic(prefer_literal=True)
def _add_step(typingctx, sums, weights, activations, tier, floats):
    """Add the products of one step; weights: 64 bytes for each vector, activations: 4 for each."""
    dot, emit = TIERS_BY_NUMBER[tier.literal_value].dot, _emit_floats if floats.literal_value else _emit_dots

    def codegen(context, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], sums.count)
        return cgutils.pack_array(builder, emit(builder, dot(builder, 15, 0), values, *arguments[1:3]))

    return sums(sums, types.uintp, types.uintp, tier, floats), codegen


def _emit_dots(builder, dot, totals, weights, activations):
    states = [dot.start(total) for total in totals]
    for row, quad, index in _pairs(builder, weights, activations, dot.bytes):
        dot.add(states[index], row, quad)
    return [dot.finish(state) for state in states]


def _emit_floats(builder, dot, totals, weights, activations):
    totals = list(totals)
    for row, place, index in _pairs(builder, weights, activations, ir.VectorType(F32, dot.rows)):
        value = splat(builder, load(builder, place, F32), dot.rows)
        totals[index] = fused_multiply_add(builder, row, value, totals[index])
    return totals


def _pairs(builder, weights, activations, vector):
    """Yield (weights, address of an activation, which sum) for each product of a step."""
    for k in range(_DEPTH):
        rows = [load(builder, builder.add(weights, I64(64 * (_WEIGHTS * k + i))), vector) for i in range(_WEIGHTS)]
        for lane in range(_ACTIVATIONS):
            place = builder.add(activations, I64(4 * (_ACTIVATIONS * k + lane)))
            yield from ((row, place, i * _ACTIVATIONS + lane) for i, row in enumerate(rows))


@intrinsic
def _store_sums(typingctx, sums, target):
    """Store the sums, so that the compiler must make them."""

    def codegen(context, builder, signature, arguments):
        for index, value in enumerate(cgutils.unpack_tuple(builder, arguments[0], sums.count)):
            store(builder, value, builder.add(arguments[1], I64(64 * index)))
        return context.get_dummy_value()

    return types.none(sums, types.uintp), codegen


@kernel(KERNEL_SIGNATURE)
def _peak_kernel(tier: int, floats: int) -> Any:
    def peak_op(op, thread, threads):
        peak = record_at(op, PEAK)
        while True:
            task = claim_task(op)
            if task >= threads:
                return
            operands = np.uintp(peak.operands) + np.uintp(task * 16384)
            sums = _zero_sums(tier, floats)
            for step in range(peak.steps):
                # A step's place wanders, or the compiler would multiply once and only add.
                place = operands + np.uintp((step & 15) * 64)
                sums = _add_step(sums, place, place + np.uintp(8192), tier, floats)
            _store_sums(sums, np.uintp(peak.sums) + np.uintp(task * 16384))

    return peak_op


class PeakProbe:
    """The operands of every thread, and the program by which a team multiplies them."""

    def __init__(self, team: Team, tier: int, *, floats: bool = False) -> None:
        self._team = team
        self._operands = zeroed((team.threads * _THREAD_BYTES,), np.uint8)
        self._operands[:] = 1  # as float32 2.4e-38, a normal number
        self._sums = zeroed((team.threads * _THREAD_BYTES,), np.uint8)
        products = TIERS_BY_NUMBER[tier].dot.rows * (1 if floats else 4) * _WEIGHTS * _ACTIVATIONS * _DEPTH * _STEPS
        self._operations = 2 * products * team.threads
        self._program = Program()
        self._program.emit(
            PEAK,
            address(_peak_kernel(tier, int(floats))),
            operands=self._operands.ctypes.data,
            sums=self._sums.ctypes.data,
            steps=_STEPS,
        )
        self._program.finish()

    def measure(self) -> float:
        """Run once; returns operations a second."""
        begin = time.perf_counter()
        self._team.run(self._program)
        return self._operations / (time.perf_counter() - begin)
