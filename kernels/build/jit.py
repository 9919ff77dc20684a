"""Kernels: functions that are compiled once a machine and kept, and called by address; decorators that make them.

A kernel's body is Python that Numba compiles, over addresses and numbers. It may call functions under `njit_inline`,
which are compiled into it, and intrinsics. It raises nothing and allocates nothing.
"""

import ctypes
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec

from kernels.build.code_store import CodeStore, code_store
from kernels.build.compile_processes import Origin, compile_alone, compile_together
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
        self.origin: Origin = (module, name, arguments)
        self._build, self._signature = build, signature

    @property
    def name(self) -> str:
        """As its file is named."""
        module, name, arguments = self.origin
        return "-".join([f"{module}.{name}", *map(str, arguments or ())])

    @property
    def is_compiled(self) -> bool:
        """Whether its code has been kept, and is whole."""
        return CAN_LOAD and code_store().read(self.name) is not None

    @functools.cached_property
    def address(self) -> int:
        """Where its code is in memory."""
        if not CAN_LOAD:
            from kernels.build.compiler import compile_in_place

            return compile_in_place(self._build(), self._signature)
        code = code_store().read(self.name)
        if code is None:
            code = self.compile(code_store()) if COMPILES_HERE else compile_alone(self.name, self.origin)
        return code.load()

    @functools.cached_property
    def call(self) -> Callable[..., Any]:
        """The kernel as a function of numbers; Python's other threads run meanwhile."""
        result, _, arguments = self._signature.rstrip(")").partition("(")
        kinds = [_C_TYPES[argument] for argument in arguments.split(", ")]
        return ctypes.CFUNCTYPE(_C_TYPES[result], *kinds)(self.address)

    def compile(self, store: CodeStore) -> MachineCode:
        """Compile it in this process, and keep its code."""
        from kernels.build.compiler import compile_code

        code = compile_code(self._build(), self._signature)
        if self.origin[0].startswith("kernels."):  # the store knows nothing of changes to other sources
            store.write(self.name, code)
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


def compile_groups(groups: Sequence[Sequence[Kernel]], progress: Callable[[float], None]) -> None:
    """Load all kernels; those that are not in the store are compiled, the groups side by side.

    `progress` gets the share that is done. A lock on the store keeps servers that start at once from compiling all
    twice: the second finds what the first has compiled.
    """
    if not COMPILES_HERE and _missing(groups):
        progress(0.0)
        with code_store().compile_lock() as lock:
            if missing := _missing(groups):  # still, after the wait for another process that had the lock
                origins = [[kernel.origin for kernel in group] for group in missing]
                compile_together(origins, lock, lambda done: progress(done / len(missing)))
    for group in groups:  # a process that failed has left kernels out: they are compiled here
        for kernel in group:
            _ = kernel.address
    progress(1.0)


def _missing(groups: Sequence[Sequence[Kernel]]) -> list[Sequence[Kernel]]:
    return [group for group in groups if not all(kernel.is_compiled for kernel in group)]


def compile_queue() -> None:
    """Compile what the request on stdin says, into the store it names: a process of compile_processes.py runs this."""
    request = json.load(sys.stdin)
    store = CodeStore(Path(request["store"]))
    while number := os.read(request["queue"], 1):
        for origin in request["groups"][number[0]]:
            kernel = find(*origin)
            if store.read(kernel.name) is None:
                kernel.compile(store)
        if request["tell"] is not None:
            os.write(request["tell"], number)
