"""From a Python function to machine code, by Numba: only a process that compiles imports this.

No kernel is compiled with fastmath: LLVM may neither reorder nor contract a floating-point operation, so that a sum has
one order on every machine (law 3 of docs/determinism.md).
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from llvmlite import ir
from numba.core import compiler, registry, sigutils, types
from numba.core.compiler_lock import global_compiler_lock

from kernels.build.machine_code import MachineCode
from kernels.build.object_file import ObjectFileError, link
from kernels.build.toolchain import FLAGS

_OF_PYTHON = ("NRT_", "Py", "_Py", "numba")  # begin the names of Numba's runtime, and of Python's


@global_compiler_lock
def compile_library(function: Callable[..., Any], signature: str) -> tuple[Any, str]:
    """Compile a function; returns Numba's library of it, and the name of the C function that it holds.

    What Numba makes of a function returns a status, and its result through a pointer. A kernel raises nothing, so that
    a C function which leaves the status alone can stand before it, and nothing of Python's is called.
    """
    arguments, result = sigutils.normalize_signature(signature)
    target = registry.cpu_target
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, {"nopython": True, **FLAGS})
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    typing, context = target.typing_context, target.target_context
    compiled = compiler.compile_extra(typing, context, function, arguments, result, flags, {})
    library, description = attrgetter("library", "fndesc")(compiled)
    module = context.create_module("c_function")
    native_type = context.call_conv.get_function_type(result, arguments)
    native = ir.Function(module, native_type, description.llvm_func_name)
    returned = ir.VoidType() if result == types.none else context.get_value_type(result)
    c_type = ir.FunctionType(returned, [context.get_value_type(argument) for argument in arguments])
    c_function = ir.Function(module, c_type, description.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(c_function.append_basic_block("entry"))
    _, value = context.call_conv.call_function(builder, native, result, arguments, c_function.args)
    builder.ret_void() if result == types.none else builder.ret(value)
    # What frees an array of Numba's: here they are views, which own nothing, and this is never called.
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), "NRT_MemInfo_call_dtor")
    free.linkage = "weak_odr"
    ir.IRBuilder(free.append_basic_block("entry")).ret_void()
    library.add_ir_module(module)
    library.finalize()
    return library, c_function.name


def compile_code(function: Callable[..., Any], signature: str) -> MachineCode:
    """Compile a function to code that can be kept; raises ObjectFileError."""
    library, name = compile_library(function, signature)
    code = link(library._get_compiled_object(), name)
    for _, called in code.imports:
        if called.startswith(_OF_PYTHON):
            raise ObjectFileError(f"{function.__qualname__} calls {called}: a kernel allocates and raises nothing")
    return code


def compile_in_place(function: Callable[..., Any], signature: str) -> int:
    """Compile a function and have llvmlite load it; returns its address."""
    library, name = compile_library(function, signature)
    return int(library.get_pointer_to_function(name))
