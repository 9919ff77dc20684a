"""Biases, head norms and rotary positions against their twins, and keys and values in their places, in every type."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.attention.kv_cache import BLOCK_TOKENS, F16, F32, KV_TYPES, Q8_0, KvType
from kernels.attention.rotary import HALVES, NEIGHBOURS, ROTARY, rotary_kernel
from kernels.build.jit import address
from kernels.run.program import Program
from tests.kernels import reference
from tests.kernels.attention.sequences import Step, plan_for, random_numbers, step_of
from tests.kernels.ops import Float32, run_program, same_bits

HEADS, KV_HEADS, BLOCKS = 3, 2, 6
SEQUENCES = [(60, 9, [4, 1]), (0, 1, [3]), (130, 2, [0, 2, 5])]
SCALE, EPSILON = 0.25, 1e-5
TYPES = tuple(KV_TYPES.values())
Bytes = NDArray[np.uint8]


class Rotated:
    """Inputs of one step, and what the op made of them."""

    def __init__(
        self,
        step: Step,
        kv_type: KvType = F32,
        *,
        dim: int = 16,
        turning: int | None = None,
        pairing: int = NEIGHBOURS,
        threads: int = 1,
        value: Float32 | None = None,
        biased: bool = False,
        normed: bool = False,
        gated: bool = False,
    ) -> None:
        random, rows, turning = np.random.default_rng(dim), len(step.positions), dim if turning is None else turning
        self.step, self.kv_type = step, kv_type
        self.query, self.key, self.value = (
            random.standard_normal((rows, heads, dim)).astype(np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        if value is not None:
            self.value = value
        self.angles = np.arange(256)[:, None] * 100.0 ** (-np.arange(turning // 2) / max(1, turning // 2))
        self.before = random_numbers(BLOCKS, KV_HEADS, dim)
        self.keys = reference.pack_keys(kv_type, self.before[0])
        self.values = reference.pack_values(kv_type, self.before[1])
        self.turned_query, self.turned_key = self.query.copy(), self.key.copy()
        self.biases = random.standard_normal((HEADS + 2 * KV_HEADS, dim)).astype(np.float32) * np.float32(biased)
        self.norms = random.standard_normal((2, dim)).astype(np.float32)
        self.plain_value = self.value.copy()
        self.gated = np.stack([self.query, np.full_like(self.query, np.nan)], axis=2)
        if gated:
            self.turned_query[:] = np.nan
        addresses = {
            "gated": self.gated.ctypes.data if gated else 0,
            "biases": self.biases.ctypes.data if biased else 0,
            "norms": self.norms.ctypes.data if normed else 0,
        }
        self._run(turning, pairing, threads, addresses)

    def _run(self, turning: int, pairing: int, threads: int, addresses: dict[str, int]) -> None:
        table = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=-1).astype(np.float32)
        (record, group, keep), program = self.step.records(), Program()
        program.emit(
            ROTARY,
            address(rotary_kernel(self.kv_type.number)),
            step=record.ctypes.data,
            group=group.ctypes.data,
            **addresses,
            epsilon=EPSILON,
            query=self.turned_query.ctypes.data,
            key=self.turned_key.ctypes.data,
            value=self.value.ctypes.data,
            heads=HEADS,
            kv_heads=KV_HEADS,
            head_dim=self.query.shape[2],
            rotary_dim=turning,
            pairing=pairing,
            scale=SCALE,
            angles=table.ctypes.data,
            keys=self.keys.ctypes.data,
            values=self.values.ctypes.data,
            block_bytes=self.kv_type.block_bytes(self.query.shape[2]),
        )
        run_program(program.finish(), threads)
        assert keep is not None

    def expected(self) -> tuple[Bytes, Bytes]:
        """The caches with the turned keys and the values in their places, by the twins."""
        blocks = self.step.tables[np.arange(len(self.step.positions)), self.step.positions // BLOCK_TOKENS]
        keys, values = self.before[0].copy(), self.before[1].copy()
        keys[blocks, :, self.step.positions % BLOCK_TOKENS] = self.turned_key
        values[blocks, :, self.step.positions % BLOCK_TOKENS] = self.value
        return reference.pack_keys(self.kv_type, keys), reference.pack_values(self.kv_type, values)


def a_step() -> Step:
    return step_of(SEQUENCES, plan_for(2, 2, 16))


@pytest.mark.parametrize("pairing", [NEIGHBOURS, HALVES])
@pytest.mark.parametrize(("dim", "turning"), [(16, 16), (16, 8), (16, 2), (48, 32), (128, 96)])
def test_queries_and_keys_turn_as_the_slow_twin_says(dim: int, turning: int, pairing: int) -> None:
    run = Rotated(a_step(), dim=dim, turning=turning, pairing=pairing)
    angles = run.angles[run.step.positions]
    query, key = (reference.rotary(x, angles, pairing) for x in (run.query, run.key))
    np.testing.assert_allclose(run.turned_query, query * SCALE, rtol=0, atol=1e-6)
    np.testing.assert_allclose(run.turned_key, key, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dim", [16, 48, 128])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_biases_and_head_norms_come_before_the_turning(dim: int, biased: bool, normed: bool) -> None:
    run = Rotated(a_step(), F32, dim=dim, pairing=HALVES, biased=biased, normed=normed)
    angles, turned = run.angles[run.step.positions], []
    heads = {"query": slice(HEADS), "key": slice(HEADS, HEADS + KV_HEADS)}
    for weight, x, part in zip(run.norms, (run.query, run.key), heads.values(), strict=True):
        x = x + run.biases[part]
        if normed:
            x = reference.rms_norm(x.reshape(-1, dim), weight, EPSILON).reshape(x.shape).astype(np.float32)
        turned.append(reference.rotary(x, angles, HALVES))
    np.testing.assert_allclose(run.turned_query, turned[0] * SCALE, rtol=0, atol=2e-6)
    np.testing.assert_allclose(run.turned_key, turned[1], rtol=0, atol=4e-6)
    assert same_bits(run.value, run.plain_value + run.biases[HEADS + KV_HEADS :])
    assert np.array_equal(run.keys, run.expected()[0]) and np.array_equal(run.values, run.expected()[1])


@pytest.mark.parametrize("dim", [16, 48])
def test_queries_may_come_with_their_gates(dim: int) -> None:
    alone, between = (Rotated(a_step(), dim=dim, normed=True, gated=gated) for gated in (False, True))
    assert same_bits(between.turned_query, alone.turned_query)


@pytest.mark.parametrize("dim", [16, 48, 64])
@pytest.mark.parametrize("kv_type", TYPES)
def test_keys_and_values_are_rounded_to_their_places_and_nothing_else_is_touched(kv_type: KvType, dim: int) -> None:
    run = Rotated(a_step(), kv_type, dim=dim)
    keys, values = run.expected()
    assert np.array_equal(run.keys, keys) and np.array_equal(run.values, values)


@pytest.mark.parametrize("kv_type", TYPES)
def test_what_is_no_number_stays_visible(kv_type: KvType) -> None:
    value = np.ones((12, KV_HEADS, 32), np.float32)
    value[0, 0, 3], value[1, 0, 20] = np.nan, -np.inf
    run = Rotated(a_step(), kv_type, dim=32, value=value)
    block = run.values[run.step.tables[0, 0], 0]
    if kv_type is Q8_0:
        scales = block[BLOCK_TOKENS * 32 :].view(np.float32)
        assert np.isnan(scales[60]) and np.isinf(scales[61])
    else:
        numbers = block.view(np.float16 if kv_type is F16 else np.float32).reshape(BLOCK_TOKENS, 32)
        assert np.isnan(numbers[60, 3]) and numbers[61, 20] == -np.inf


def test_q8_0_takes_blocks_of_zeros_tiny_and_huge_values() -> None:
    value = np.random.default_rng(1).standard_normal((12, KV_HEADS, 64)).astype(np.float32)
    value[0], value[1], value[5, :, :32] = 0, -0.0, 0
    value[2] *= np.float32(1e-40)
    value[3] *= np.float32(1e37)
    value[4] *= np.float32(1e-37)
    value[6] = np.resize(np.array([127, 0.5, 1.5, -2.5, -127], np.float32), 64)  # ties
    run = Rotated(a_step(), Q8_0, dim=64, value=value)
    assert np.array_equal(run.values, run.expected()[1])


def test_position_zero_turns_nothing() -> None:
    run = Rotated(step_of([(0, 1, [0])], plan_for(2, 2, 16)))
    assert same_bits(run.turned_query, run.query * np.float32(SCALE))


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int, kv_type: KvType) -> None:
    one, many = Rotated(a_step(), kv_type), Rotated(a_step(), kv_type, threads=threads)
    assert same_bits(many.turned_query, one.turned_query)
    assert np.array_equal(many.keys, one.keys) and np.array_equal(many.values, one.values)
