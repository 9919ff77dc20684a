"""Numba and llvmlite as the kernels' sources see them: real in a process that compiles, absent in all others.

They take a third of a second and some 65 MiB, of which a server needs nothing: its kernels come from the store, and
processes of their own compile what is not there. So every file of kernels/ takes what it needs of the two from here.
Where they are absent, types, constants and decorators are placeholders: a module can be imported, for its records and
sizes, but nothing in it can be compiled.

A process compiles for itself if it has imported Numba before it imports kernels/ (as the tests do), or if compiled
code cannot be loaded here without llvmlite.
"""

import sys
from typing import Any

from kernels.build.machine_code import CAN_LOAD

# Of all compiled code. fastmath is left off: see compiler.py.
FLAGS = {"nogil": True, "error_model": "numpy", "boundscheck": False}
COMPILES_HERE = "numba" in sys.modules or not CAN_LOAD


class _Absent:
    """Stands for anything of Numba's or llvmlite's while a module is imported: modules, types, classes, decorators."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> "_Absent":
        if name.startswith("__"):  # what Python itself may ask for, such as __wrapped__
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "_Absent":
        return self

    def __mro_entries__(self, _: object) -> tuple[type]:
        return (_Absent,)  # the base of a class


if COMPILES_HERE:
    from llvmlite import ir
    from numba import carray, njit, types
    from numba.core import cgutils
    from numba.core.extending import intrinsic, models, overload, register_model
else:
    _absent: Any = _Absent()
    ir = types = cgutils = models = _absent
    carray = njit = intrinsic = overload = register_model = _absent

__all__ = [
    "COMPILES_HERE",
    "carray",
    "cgutils",
    "intrinsic",
    "ir",
    "models",
    "njit",
    "overload",
    "register_model",
    "types",
]
