"""Compiles every kernel that a model needs before its weights are loaded, so that the wait can be shown."""

import functools
from collections.abc import Callable
from typing import Any

from engine.families.llama_config import LlamaConfig
from engine.sampler import Sampler
from engine.weights.gguf import GgufFile
from kernels.activation import silu_kernel
from kernels.activations import TILE_WIDTHS
from kernels.attention import attention_kernel, attention_tile, rows_per_tile
from kernels.dot import DOTS_BY_TIER
from kernels.gemv import compile_tile, matmul_kernel
from kernels.norm import norm_kernel, pack_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.rotary import rotary_kernel


def compile_kernels(
    config: LlamaConfig, file: GgufFile, activations: str, tier: int, progress: Callable[[float], None]
) -> None:
    """Compile (or take from the cache on disk) all kernels; `progress` gets the share that is done."""
    tasks = _tasks(config, matrix_types(file, activations), tier)
    for done, task in enumerate(tasks):
        progress(done / len(tasks))
        task()
    progress(1.0)


def matrix_types(file: GgufFile, activations: str) -> list[str]:
    """Names of the executable types among the file's matrices, as they will be run."""
    if activations == "f32":
        return ["F32"]
    found = {info.type for info in file.tensors.values() if len(info.shape) > 1}
    return sorted(found & WEIGHT_TYPES.keys())


def _tasks(config: LlamaConfig, types: list[str], tier: int) -> list[Callable[[], Any]]:
    group, dim, width = config.group, config.head_dim, DOTS_BY_TIER[tier].rows
    tasks: list[Callable[[], Any]] = [norm_kernel, pack_kernel, silu_kernel, rotary_kernel, matmul_kernel]
    tasks.append(attention_kernel)
    tasks.append(functools.partial(Sampler, config.vocabulary))  # compiles its kernels when it is made
    for rows in sorted({1, rows_per_tile(group)}):
        tasks.append(functools.partial(attention_tile, group, rows, dim, width))
    for name in types:
        for lanes in TILE_WIDTHS:
            tasks.append(functools.partial(compile_tile, WEIGHT_TYPES[name], lanes, tier))
    return tasks
