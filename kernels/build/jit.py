"""Kernels: functions that are compiled once a machine and kept, and called by address; decorators that make them.

A kernel's body is Python that Numba compiles, over addresses and numbers. It may call functions under `njit_inline`,
which are compiled into it, and intrinsics. It raises nothing and allocates nothing.
"""

import ctypes
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from kernels.build import code_store
from kernels.build.machine_code import CAN_LOAD, MachineCode
from kernels.build.toolchain import COMPILES_HERE, FLAGS, njit

# Every op of a program: (address of the op record, thread index, number of threads).
KERNEL_SIGNATURE = "void(uintp, int64, int64)"

# A helper that is compiled into the kernels which call it.
njit_inline = functools.partial(njit, **FLAGS)

P = ParamSpec("P")
_C_TYPES: dict[str, Any] = {
    "void": None,
    "uintp": ctypes.c_uint64,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


class Kernel:
    """One compiled function; its code is fetched, or compiled where there is none, when it is first wanted."""

    def __init__(
        self, module: str, name: str, arguments: tuple[int, ...] | None, build: Callable[[], Any], signature: str
    ) -> None:
        """module, name, arguments: how other processes find it, see `find`; build: returns what is to be compiled."""
        self.origin = (module, name, arguments)
        self._build, self._signature = build, signature

    @property
    def name(self) -> str:
        """As its file is named."""
        module, name, arguments = self.origin
        return "-".join([f"{module}.{name}", *map(str, arguments or ())])

    @property
    def is_compiled(self) -> bool:
        """Whether its code has been kept, and is whole."""
        return CAN_LOAD and code_store.read(self.name) is not None

    @functools.cached_property
    def address(self) -> int:
        """Where its code is in memory."""
        if not CAN_LOAD:
            from kernels.build.compiler import compile_in_place

            return compile_in_place(self._build(), self._signature)
        code = code_store.read(self.name) or self.compile()
        return code.load()

    @functools.cached_property
    def call(self) -> Callable[..., Any]:
        """It as a function of numbers; Python's other threads run meanwhile."""
        result, _, arguments = self._signature.rstrip(")").partition("(")
        kinds = [_C_TYPES[argument] for argument in arguments.split(", ")]
        return ctypes.CFUNCTYPE(_C_TYPES[result], *kinds)(self.address)

    def compile(self) -> MachineCode:
        """Compile it, here or in a process that can, and keep its code."""
        if not COMPILES_HERE:
            from kernels.build.compile_processes import compile_alone

            return compile_alone(self)
        from kernels.build.compiler import compile_code

        code = compile_code(self._build(), self._signature)
        if self.origin[0].startswith("kernels."):  # the store knows nothing of changes to other sources
            code_store.write(self.name, code)
        return code


def kernel(signature: str) -> Callable[[Callable[P, Any]], Callable[P, Kernel]]:
    """Make a function that returns what to compile for its arguments, whole numbers, one that returns a Kernel."""

    def decorate(build: Callable[P, Any]) -> Callable[P, Kernel]:
        def variant(*arguments: Any) -> Kernel:
            compiled = functools.partial(build, *arguments)
            return Kernel(build.__module__, build.__name__, arguments, compiled, signature)

        made: Any = functools.cache(variant)  # mypy: it takes what `build` takes
        return functools.update_wrapper(made, build)

    return decorate


def c_function(signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function that has no variants a Kernel."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function.__module__, function.__name__, None, lambda: function, signature)

    return decorate


def find(module: str, name: str, arguments: Sequence[int] | None) -> Kernel:
    """The kernel of an `origin`."""
    found = getattr(importlib.import_module(module), name)
    kernel = found if arguments is None else found(*arguments)
    assert isinstance(kernel, Kernel)
    return kernel


def address(compiled: Kernel) -> int:
    """Where a kernel's code is in memory; it is loaded now, and compiled if need be."""
    return compiled.address
