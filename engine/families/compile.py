"""Compiles every kernel that a model needs before its weights are loaded, so that the wait can be shown.

With nothing compiled yet, a child process compiles what all models share while this one compiles what its weight types
need; they meet in the cache on disk. A lock on that cache keeps servers that start at once from writing there together:
the second finds what the first has compiled.
"""

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.families.family import FamilyConfig, Task
from engine.sampler import Sampler
from engine.weights.load import compile_loading
from engine.weights.weights_file import WeightsFile
from kernels.attention import attention_kernel
from kernels.gated_matmul import gated_kernel
from kernels.gemv import compile_tile, matmul_kernel, tile_widths
from kernels.jit import compile_lock, nothing_is_compiled
from kernels.kv_cache import KvType
from kernels.norm import add_norm_kernel, norm_kernel, pack_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.rotary import rotary_kernel

_WORKER = Path(__file__).with_name("compile_worker.py")


def compile_kernels(
    config: FamilyConfig,
    file: WeightsFile,
    activations: str,
    kv_type: KvType,
    tier: int,
    own_tasks: Sequence[Task],
    progress: Callable[[float], None],
) -> None:
    """Compile (or take from the cache on disk) all kernels, the family's own too.

    `progress` gets the share that is done.
    """
    shared = shared_tasks(kv_type.number, tier, config.vocabulary)
    tasks = [*own_tasks, *_type_tasks(matrix_types(file), activations, tier), *shared]
    with compile_lock():
        child = _compile_beside(kv_type.number, tier, config.vocabulary) if nothing_is_compiled() else None
        for done, task in enumerate(tasks):
            if child is not None and len(tasks) - done == len(shared):
                child.wait()  # if it failed, its tasks are compiled here
            progress(done / len(tasks))
            task()
    progress(1.0)


def shared_tasks(kv_type: int, tier: int, vocabulary: int) -> list[Task]:
    """What every model needs, whatever its weight types; `kv_type` is KvType.number."""
    return [
        functools.partial(attention_kernel, kv_type, tier),
        functools.partial(rotary_kernel, kv_type, tier),
        functools.partial(Sampler, vocabulary),  # compiles its kernels when it is made
        norm_kernel,
        add_norm_kernel,
        pack_kernel,
        gated_kernel,
        matmul_kernel,
    ]


def matrix_types(file: WeightsFile) -> list[str]:
    """Names of the executable types among the file's matrices."""
    found = {info.type for info in file.tensors.values() if len(info.shape) > 1}
    return sorted(found & WEIGHT_TYPES.keys())


def _type_tasks(types: list[str], activations: str, tier: int) -> list[Task]:
    tasks: list[Task] = [functools.partial(compile_loading, WEIGHT_TYPES[name], activations) for name in types]
    for name in ["F32"] if activations == "f32" else types:
        tasks += [functools.partial(compile_tile, WEIGHT_TYPES[name], lanes, tier) for lanes in tile_widths(tier)]
    return tasks


def _compile_beside(kv_type: int, tier: int, vocabulary: int) -> "subprocess.Popen[bytes]":
    """Start to compile the shared tasks in a process of their own: no two threads can compile at once."""
    return subprocess.Popen(
        [sys.executable, "-P", str(_WORKER), str(kv_type), str(tier), str(vocabulary)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
