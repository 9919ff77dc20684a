"""Compiles every kernel that a model needs before its weights are loaded, so that the wait can be shown."""

import logging
from collections.abc import Callable, Sequence

from engine.errors import EngineFaultError, OctavoError
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import loading_kernels
from kernels.attention.attention import attention_kernel
from kernels.attention.kv_cache import KvType
from kernels.attention.rotary import rotary_kernel
from kernels.build.cache_folder import CacheFolderError
from kernels.build.code_store import code_store
from kernels.build.compile_processes import CompileError
from kernels.build.jit import Kernel, compile_groups
from kernels.matmul.activations import lane_packer
from kernels.matmul.gated_matmul import gated_kernel
from kernels.matmul.gemv import compile_tile, matmul_kernel, tile_widths
from kernels.matmul.row_ops import add_norm_kernel, bias_kernel, norm_kernel, pack_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.run import team
from kernels.run.probes import read_kernel
from kernels.sampling import logits, sampling
from kernels.sampling.logits import likeliest_kernel

logger = logging.getLogger(__name__)


def compile_kernels(
    file: WeightsFile,
    activations: str,
    kv_type: KvType,
    tier: int,
    own_kernels: Sequence[Kernel],
    progress: Callable[[float], None],
) -> None:
    """Load all kernels, the family's own too, and compile those that never were.

    `progress` gets the share that is done.
    """
    own = [*own_kernels, *([bias_kernel()] if any(map(_has_output_bias, file.tensors)) else [])]
    try:
        if (trouble := code_store().why_not_kept) is not None:
            logger.warning("compiled kernels are not kept, and are compiled again at each start. %s", trouble)
        compile_groups(kernel_groups(matrix_types(file), own, activations, kv_type.number, tier), progress)
    except CompileError as error:
        raise EngineFaultError(str(error)) from error
    except CacheFolderError as error:
        raise OctavoError(str(error)) from error


def _has_output_bias(name: str) -> bool:
    """Whether a tensor is a bias of a matmul that adds to the residual stream; the others are added in other ops."""
    return name.endswith(("attn_output.bias", "ffn_down.bias"))


def kernel_groups(
    types: list[str], own_kernels: Sequence[Kernel], activations: str, kv_type: int, tier: int
) -> list[list[Kernel]]:
    """What can be compiled at the same time, the longest first.

    Kernels of one group share much of what they call, which one process compiles once.
    """
    kinds = [WEIGHT_TYPES[name] for name in types]
    tiled = [WEIGHT_TYPES["F32"]] if activations == "f32" else kinds
    return [
        [compile_tile(kind, lanes, tier) for kind in tiled for lanes in tile_widths(tier)],
        [attention_kernel(kv_type, tier)],
        [*sampling.KERNELS, *logits.LOGPROB_KERNELS, *logits.MASK_KERNELS],
        *([kernel] for kernel in own_kernels),
        [*team.KERNELS, read_kernel()],
        [rotary_kernel(kv_type)],
        [gated_kernel()],
        [kernel for kind in kinds for kernel in loading_kernels(kind, activations)],
        [norm_kernel()],
        [likeliest_kernel()],
        [add_norm_kernel()],
        [pack_kernel()],
        [lane_packer()],
        [matmul_kernel()],
    ]


def matrix_types(file: WeightsFile) -> list[str]:
    """Names of the executable types among the file's matrices."""
    found = {info.type for info in file.tensors.values() if len(info.shape) > 1}
    return sorted(found & WEIGHT_TYPES.keys())
