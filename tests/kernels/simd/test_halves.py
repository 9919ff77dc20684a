"""Half precision: the processor's instructions and the integer steps against NumPy, for every half and hard floats."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.build.jit import njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.machine.cpu import has_half_instructions
from kernels.simd import halves
from kernels.simd.vectors import F32, I16, load, store

Converter = Callable[[NDArray[Any], NDArray[Any]], None]
WAYS = [
    pytest.param(
        True, marks=pytest.mark.skipif(not has_half_instructions(), reason="no such instructions"), id="native"
    ),
    pytest.param(False, id="integers"),
]


@pytest.fixture(params=WAYS)
def converters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Converter, Converter]:
    """Functions that widen halves and round floats, from one array to another."""
    monkeypatch.setattr(halves, "has_half_instructions", lambda: request.param)
    return converter(halves.half_to_float, I16, 4), converter(halves.float_to_half, F32, 2)


def converter(emit: Callable[[Any, Any], Any], element: Any, output_bytes: int) -> Converter:
    input_bytes = 6 - output_bytes

    @intrinsic
    def convert(typingctx: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            store(builder, emit(builder, load(builder, arguments[0], ir.VectorType(element, 16))), arguments[1])
            return context.get_dummy_value()

        return types.none(types.uintp, types.uintp), codegen

    @njit_inline
    def convert_all(source: Any, target: Any, chunks: Any) -> None:
        for chunk in range(chunks):
            convert(
                np.uintp(source) + np.uintp(chunk * 16 * input_bytes),
                np.uintp(target) + np.uintp(chunk * 16 * output_bytes),
            )

    return lambda source, target: convert_all(source.ctypes.data, target.ctypes.data, len(source) // 16)


def every_half() -> NDArray[np.float16]:
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def hard_floats() -> NDArray[np.float32]:
    """Every half of both signs, its neighbours in float32 and the midpoints between halves."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    above = np.append(halves[1:], np.float32(65536))
    middle = (halves + above) / 2
    positive = np.concatenate([halves, middle, np.nextafter(middle, halves), np.nextafter(middle, above)])
    extremes = np.array([np.inf, 1e38, 65519.99, 65520, 65536, 1e-45, 2.0**-25, 1e-38], np.float32)
    positive = np.concatenate([positive, extremes])
    both = np.concatenate([positive, -positive])
    return np.resize(both, -(-len(both) // 16) * 16)


def test_every_half_is_widened_to_its_number(converters: tuple[Converter, Converter]) -> None:
    result = np.zeros(1 << 16, np.float32)
    converters[0](every_half(), result)
    expected = every_half().astype(np.float32)
    is_number = ~np.isnan(expected)
    assert np.array_equal(result[is_number].view(np.uint32), expected[is_number].view(np.uint32))
    assert np.isnan(result[~is_number]).all()


def test_floats_round_to_even_overflow_and_underflow(converters: tuple[Converter, Converter]) -> None:
    floats = hard_floats()
    result = np.zeros(len(floats), np.float16)
    converters[1](floats, result)
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    assert np.array_equal(result.view(np.uint16), expected.view(np.uint16))


def test_what_is_no_number_stays_none(converters: tuple[Converter, Converter]) -> None:
    result = np.zeros(16, np.float16)
    converters[1](np.full(16, np.nan, np.float32), result)
    assert np.isnan(result).all()
