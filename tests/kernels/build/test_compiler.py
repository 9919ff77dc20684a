"""From object files to code in memory: constants and C functions are found, and what is not known is refused."""

import ctypes
import math
import platform
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from kernels.build.compiler import compile_code
from kernels.build.jit import Kernel
from kernels.build.machine_code import MachineCode
from kernels.build.compiler import ObjectFileError, link

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor is no x86-64")


def object_file(source: str, code_model: str = "large") -> bytes:
    module = llvm.parse_assembly(source)
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(codemodel=code_model, reloc="static", jit=False)
    return bytes(machine.emit_object(module))


CUBE_ROOT = """
    declare double @cbrt(double)
    define double @negative_cube_root(double %x) {
      %root = call double @cbrt(double %x)
      %result = fneg double %root
      ret double %result
    }
"""
TABLE = """
    @table = private constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
    @rows = private constant [2 x ptr] [ptr getelementptr (i8, ptr @table, i64 16), ptr @table]
    define i64 @third(i64 %which) {
      %place = getelementptr [2 x ptr], ptr @rows, i64 0, i64 %which
      %row = load ptr, ptr %place
      %next = getelementptr i64, ptr %row, i64 1
      %value = load i64, ptr %next
      ret i64 %value
    }
"""
COUNTER = """
    @count = global i64 0
    define i64 @step() {
      %old = load i64, ptr @count
      %new = add i64 %old, 1
      store i64 %new, ptr @count
      ret i64 %new
    }
"""


def kept(code: MachineCode) -> int:
    """Load code that has been to the disk and back."""
    return MachineCode.from_bytes(code.to_bytes()).load()


def test_code_calls_the_c_library() -> None:
    code = link(object_file(CUBE_ROOT), "negative_cube_root")
    assert [name for _, name in code.imports] == ["cbrt"]
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(kept(code))
    assert function(27.0) == -math.cbrt(27.0)


def test_constants_that_hold_addresses_are_found() -> None:
    code = link(object_file(TABLE), "third")
    assert len(code.places) >= 3
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kept(code))
    assert [function(0), function(1)] == [7, 3]


@pytest.mark.parametrize(
    ("data", "entry", "reason"),
    [
        (b"\x7fELF\x01\x01\x01" + bytes(64), "f", "no relocatable object file"),
        (b"", "f", "no relocatable object file"),
        (object_file(COUNTER), "step", "to be written to"),
        (object_file(CUBE_ROOT, "small"), "negative_cube_root", "relocation of type"),
    ],
)
def test_what_is_not_known_is_refused(data: bytes, entry: str, reason: str) -> None:
    with pytest.raises(ObjectFileError, match=reason):
        link(data, entry)


def test_a_kernel_that_allocates_is_refused() -> None:
    def allocates(count: Any) -> Any:
        return np.zeros(count)[0]

    with pytest.raises(ObjectFileError, match="allocates and raises nothing"):
        compile_code(allocates, "float64(int64)")


def test_a_kernel_of_another_package_is_not_kept() -> None:
    def double(x: Any) -> Any:
        return x + x

    kernel = Kernel(__name__, "double", None, lambda: double, "float64(float64)")
    assert kernel.call(1.5) == 3.0 and not kernel.is_compiled
