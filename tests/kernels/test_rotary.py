"""Rotary positions against their twin, and keys and values in their places."""

import numpy as np
import pytest

from kernels import reference
from kernels.jit import address
from kernels.kv_cache import BLOCK_TOKENS
from kernels.program import Program
from kernels.rotary import ROTARY, rotary_kernel
from tests.kernels.ops import Float32, run_program, same_bits
from tests.kernels.sequences import Step, step_of

HEADS, KV_HEADS, DIM, BLOCKS = 3, 2, 16, 6
PARTS = [(60, 9, [4, 1]), (0, 1, [3]), (130, 2, [0, 2, 5])]
SCALE = 0.25


class Rotated:
    """Inputs of one step, and what the op made of them."""

    def __init__(self, step: Step, turning: int = DIM, threads: int = 1) -> None:
        random, rows = np.random.default_rng(len(step.positions)), len(step.positions)
        self.query, self.key, self.value = (
            random.standard_normal((rows, heads, DIM)).astype(np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        self.angles = np.arange(256)[:, None] * 100.0 ** (-np.arange(turning // 2) / (turning // 2))
        self.keys = np.full((BLOCKS, KV_HEADS, DIM, BLOCK_TOKENS), np.nan, np.float32)
        self.values = np.full((BLOCKS, KV_HEADS, BLOCK_TOKENS, DIM), np.nan, np.float32)
        self.turned_query = self.query.copy()
        self._run(step, turning, threads)

    def _run(self, step: Step, turning: int, threads: int) -> None:
        table = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=-1).astype(np.float32)
        (record, keep), program = step.record(), Program()
        program.emit(
            ROTARY,
            address(rotary_kernel()),
            step=record.ctypes.data,
            query=self.turned_query.ctypes.data,
            key=self.key.ctypes.data,
            value=self.value.ctypes.data,
            heads=HEADS,
            kv_heads=KV_HEADS,
            head_dim=DIM,
            rotary_dim=turning,
            scale=SCALE,
            angles=table.ctypes.data,
            keys=self.keys.ctypes.data,
            values=self.values.ctypes.data,
        )
        run_program(program.finish(), threads)
        assert keep is not None


def at(cache: Float32, step: Step) -> Float32:
    """What stands in a cache [blocks, KV heads, tokens, head_dim] for each row: [rows, KV heads, head_dim]."""
    blocks = step.tables[np.arange(len(step.positions)), step.positions // BLOCK_TOKENS]
    return cache[blocks, :, step.positions % BLOCK_TOKENS]


@pytest.mark.parametrize("turning", [DIM, DIM // 2])
def test_queries_and_keys_turn_as_the_slow_twin_says(turning: int) -> None:
    step = step_of(PARTS, 1)
    run = Rotated(step, turning)
    angles = run.angles[step.positions]
    np.testing.assert_allclose(run.turned_query, reference.rotary(run.query, angles) * SCALE, rtol=0, atol=1e-6)
    found = at(run.keys.transpose(0, 1, 3, 2), step)
    np.testing.assert_allclose(found, reference.rotary(run.key, angles), rtol=0, atol=1e-6)


def test_values_are_stored_as_they_are_and_nothing_else_is_touched() -> None:
    step = step_of(PARTS, 1)
    run = Rotated(step)
    assert same_bits(at(run.values, step), run.value)
    assert np.isfinite(run.values).sum() == np.isfinite(run.keys).sum() == len(step.positions) * KV_HEADS * DIM


def test_position_zero_turns_nothing() -> None:
    run = Rotated(step_of([(0, 1, [0])], 1))
    assert same_bits(run.turned_query, run.query * np.float32(SCALE))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    one, many = Rotated(step_of(PARTS, 1)), Rotated(step_of(PARTS, 1), threads=threads)
    assert same_bits(many.turned_query, one.turned_query)
    assert same_bits(many.keys, one.keys) and same_bits(many.values, one.values)
