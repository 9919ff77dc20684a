"""Compiles every kernel that a model needs before its weights are loaded, so that the wait can be shown.

With nothing compiled yet, processes of their own help, since no two threads can compile at once: all take groups of
kernels from one queue, a pipe with a byte for each group, and meet in the cache on disk. A lock on that cache keeps
servers that start at once from writing there together: the second finds what the first has compiled.
"""

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from engine.families.family import FamilyConfig, Task
from engine.machine import measure_bandwidth
from engine.sampler import Sampler
from engine.weights.load import compile_loading
from engine.weights.weights_file import WeightsFile
from kernels.activations import lane_packer
from kernels.attention import attention_kernel
from kernels.cpu import usable_cores
from kernels.gated_matmul import gated_kernel
from kernels.gemv import compile_tile, matmul_kernel, tile_widths
from kernels.jit import compile_lock, nothing_is_compiled
from kernels.kv_cache import KvType
from kernels.norm import add_norm_kernel, norm_kernel, pack_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.rotary import rotary_kernel

_WORKER = Path(__file__).with_name("compile_worker.py")
_MOST_PROCESSES = 4  # the longest group takes a quarter of all the time


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
    groups = _groups(matrix_types(file), own_tasks, activations, kv_type.number, tier, config.vocabulary)
    with compile_lock() as lock:
        if nothing_is_compiled():
            _compile_together(groups, lock, progress)
        for done, group in enumerate(groups):  # from the cache; and what a process that failed has left
            progress(done / len(groups))
            for task in group:
                task()
    progress(1.0)


def compile_from(queue: int, groups: Sequence[Sequence[Task]]) -> Iterator[int]:
    """Compile the groups that can be taken from the queue, a file descriptor; yields the number of each before."""
    while number := os.read(queue, 1):
        yield number[0]
        for task in groups[number[0]]:
            task()


def _compile_together(groups: Sequence[Sequence[Task]], lock: int, progress: Callable[[float], None]) -> None:
    """Compile all groups, with the help of other processes where there are cores for them."""
    queue, numbers = os.pipe()
    os.write(numbers, bytes(range(len(groups))))
    os.close(numbers)
    helpers = [_start_helper(queue, lock, groups) for _ in range(min(usable_cores(), _MOST_PROCESSES) - 1)]
    for number in compile_from(queue, groups):
        progress(number / len(groups))
    os.close(queue)
    for helper in helpers:
        helper.wait()


def _start_helper(queue: int, lock: int, groups: Sequence[Sequence[Task]]) -> "subprocess.Popen[bytes]":
    """Start one that holds the lock too: where its server is killed, it goes on, and the next server waits for it."""
    helper = subprocess.Popen(
        [sys.executable, "-P", str(_WORKER), str(queue)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[queue, lock],
    )
    assert helper.stdin is not None
    with suppress(BrokenPipeError), helper.stdin as pipe:  # one that is gone already leaves its share to the others
        pipe.write(pickle.dumps(groups))
    return helper


def _groups(
    types: list[str], own_tasks: Sequence[Task], activations: str, kv_type: int, tier: int, vocabulary: int
) -> list[list[Task]]:
    """What can be compiled at the same time, the longest first.

    The variants of one function stand in one group: they share an index in Numba's cache.
    """
    kinds = [WEIGHT_TYPES[name] for name in types]
    tiled = [WEIGHT_TYPES["F32"]] if activations == "f32" else kinds
    return [
        [functools.partial(compile_tile, kind, lanes, tier) for kind in tiled for lanes in tile_widths(tier)],
        [functools.partial(attention_kernel, kv_type, tier)],
        [functools.partial(Sampler, vocabulary)],  # compiles its kernels when it is made
        *([task] for task in own_tasks),
        [functools.partial(measure_bandwidth, 2, 1)],  # for what a team of threads needs
        [functools.partial(rotary_kernel, kv_type, tier)],
        [gated_kernel],
        [functools.partial(compile_loading, kind, activations) for kind in kinds],
        [norm_kernel],
        [add_norm_kernel],
        [pack_kernel],
        [lane_packer],
        [matmul_kernel],
    ]


def matrix_types(file: WeightsFile) -> list[str]:
    """Names of the executable types among the file's matrices."""
    found = {info.type for info in file.tensors.values() if len(info.shape) > 1}
    return sorted(found & WEIGHT_TYPES.keys())
