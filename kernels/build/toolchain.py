"""Numba and llvmlite as the kernels' sources see them: real in a process that compiles, placeholders in all others.

They take a third of a second and some 65 MiB, of which a server needs nothing: its kernels come from the store, and
processes of their own compile what is not there. So every file of kernels/ takes what it needs of the two from here.

A process compiles for itself if it has imported Numba before it imports kernels/ (as the tests do), or if compiled
code cannot be loaded here without llvmlite. Elsewhere a module of kernels/ can be imported for its records and sizes:
decorators leave functions as they are, and of the two libraries there is what modules name while they are imported,
and nothing more. All else is named in the bodies of functions, which run in a process that compiles.
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kernels.build.machine_code import CAN_LOAD

# Of all compiled code. fastmath is left off: see compiler.py.
FLAGS = {"nogil": True, "error_model": "numpy", "boundscheck": False}
COMPILES_HERE = "numba" in sys.modules or not CAN_LOAD


class _Type:
    """Stands for any type, as a class to derive from or as a value."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


def _unchanged(function: Any = None, **_: object) -> Any:
    """Stands for a decorator, with or without options."""
    return (lambda decorated: decorated) if function is None else function


def _for_target(_: object) -> Callable[[Any], Any]:
    """Stands for a decorator that is told what it decorates for."""
    return lambda decorated: decorated


if COMPILES_HERE:
    from llvmlite import ir
    from numba import carray, njit, types
    from numba.core import cgutils
    from numba.core.extending import intrinsic, models, overload, register_model
else:
    _named: Any = SimpleNamespace
    ir = _named(IntType=_Type, HalfType=_Type, FloatType=_Type, VectorType=_Type)
    types = _named(Type=_Type, **{name: _Type() for name in ("int16", "int32", "int64", "float32")})
    models = _named(PrimitiveModel=_Type)
    carray = cgutils = None
    njit = intrinsic = _unchanged
    overload = register_model = _for_target

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
