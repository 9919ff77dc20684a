"""Compiles every kernel that a model needs before its weights are loaded, so that the wait can be shown."""

import functools
from collections.abc import Callable
from typing import Any

from engine.families.llama_config import LlamaConfig
from engine.sampler import Sampler
from engine.weights.gguf import GgufFile
from engine.weights.load import compile_loading
from kernels.attention import attention_kernel
from kernels.gated_matmul import gated_kernel
from kernels.gemv import compile_tile, matmul_kernel, tile_widths
from kernels.kv_cache import KvType
from kernels.norm import norm_kernel, pack_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.rotary import rotary_kernel


def compile_kernels(
    config: LlamaConfig,
    file: GgufFile,
    activations: str,
    kv_type: KvType,
    tier: int,
    progress: Callable[[float], None],
) -> None:
    """Compile (or take from the cache on disk) all kernels; `progress` gets the share that is done."""
    tasks = _tasks(config, matrix_types(file), activations, kv_type, tier)
    for done, task in enumerate(tasks):
        progress(done / len(tasks))
        task()
    progress(1.0)


def matrix_types(file: GgufFile) -> list[str]:
    """Names of the executable types among the file's matrices."""
    found = {info.type for info in file.tensors.values() if len(info.shape) > 1}
    return sorted(found & WEIGHT_TYPES.keys())


def _tasks(
    config: LlamaConfig, types: list[str], activations: str, kv_type: KvType, tier: int
) -> list[Callable[[], Any]]:
    tasks: list[Callable[[], Any]] = [norm_kernel, pack_kernel, gated_kernel, matmul_kernel]
    for factory in (rotary_kernel, attention_kernel):
        tasks.append(functools.partial(factory, kv_type.number, tier))
    tasks.append(functools.partial(Sampler, config.vocabulary))  # compiles its kernels when it is made
    for name in types:
        tasks.append(functools.partial(compile_loading, WEIGHT_TYPES[name], activations))
    for name in ["F32"] if activations == "f32" else types:
        for lanes in tile_widths(tier):
            tasks.append(functools.partial(compile_tile, WEIGHT_TYPES[name], lanes, tier))
    return tasks
