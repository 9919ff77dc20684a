"""A model file turned into a runner: picks the family by architecture, compiles its kernels, repacks its weights."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.errors import OctavoError, UnsupportedModelError
from engine.families.compile import compile_kernels
from engine.families.llama import build_llama
from engine.families.llama_config import LlamaConfig, read_llama_config
from engine.families.run_state import Capacity
from engine.machine import available_memory
from engine.runner import Runner
from engine.runner_protocol import SequenceRows
from engine.weights.gguf import GgufFile
from engine.weights.load import WeightLoader
from kernels.cpu import TIER_NUMBERS, supported_tiers, usable_cores
from kernels.kv_cache import BLOCK_TOKENS, KV_TYPES, KvType

Progress = Callable[[str, float], None]
# Rows a step: enough for a prefill chunk; buffers grow with it.
MAX_ROWS = 512
# Rows of logits a step: the chunk in which a prompt is scored. Memory that no step touches is never taken.
LOGIT_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """How to run a model; None means: as the machine and the file allow."""

    lanes: int = 8
    context_length: int | None = None
    threads: int | None = None
    isa: str | None = None
    activations: str = "int8"
    kv_type: str = "f16"  # of attention keys and values
    max_rows: int = MAX_ROWS
    max_logit_rows: int | None = None  # None: one a lane, and no fewer than LOGIT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRunner:
    """A runner and what is known about it."""

    runner: Runner
    isa: str
    bytes_per_token: int  # weights that one decode step reads


def load_runner(file: GgufFile, options: RunnerOptions, progress: Progress) -> LoadedRunner:
    """Build the runner of a model file, with all that it will run compiled and warm."""
    isa, threads, kv_type = choose_isa(options.isa), choose_threads(options.threads), choose_kv_type(options.kv_type)
    check_family(file)
    config = read_llama_config(file)
    context = choose_context(config, options.context_length)
    n_blocks = _blocks(config, context, options.lanes, kv_type)
    capacity = Capacity(
        max_rows=options.max_rows,
        max_logit_rows=options.max_logit_rows or max(options.lanes, LOGIT_ROWS),
        n_blocks=n_blocks,
        context_length=min(context, n_blocks * BLOCK_TOKENS),
        threads=threads,
        kv_type=kv_type,
    )
    tier = TIER_NUMBERS[isa]
    compile_kernels(config, file, options.activations, kv_type, tier, lambda done: progress("Compiling kernels", done))
    loading = WeightLoader(
        file, activations=options.activations, progress=lambda done: progress("Loading weights", done)
    )
    with loading as weights:
        program, state, embed = build_llama(config, weights, capacity, tier)
        bytes_per_token = weights.finish()
    runner = Runner(
        program=program,
        state=state,
        embed=embed,
        capacity=capacity,
        vocab_size=config.vocabulary,
    )
    try:
        _warm_up(runner)
    except OctavoError:
        runner.close()
        raise
    return LoadedRunner(runner=runner, isa=isa, bytes_per_token=bytes_per_token)


def check_family(file: GgufFile) -> None:
    """Raise UnsupportedModelError for an architecture that has no builder."""
    if file.architecture != "llama":
        raise UnsupportedModelError(
            f"{file.path} is of the architecture {file.architecture!r}; this version runs: llama."
        )


def choose_isa(asked: str | None) -> str:
    """Return the instruction tier to run with; OctavoError where the processor lacks the one asked for."""
    there = supported_tiers()
    if asked is None:
        return there[0]
    if asked not in TIER_NUMBERS:
        raise OctavoError(f"There is no instruction tier {asked!r}; --isa takes one of {', '.join(TIER_NUMBERS)}.")
    if asked not in there:
        raise OctavoError(f"This processor cannot run the tier {asked!r}; it can run {', '.join(there)}.")
    return asked


def choose_kv_type(asked: str) -> KvType:
    """Return the type that keys and values are held in."""
    if asked not in KV_TYPES:
        raise OctavoError(
            f"There is no type {asked!r} of keys and values; --kv-type takes one of {', '.join(KV_TYPES)}."
        )
    return KV_TYPES[asked]


def choose_threads(asked: int | None) -> int:
    """Return the number of compute threads: those asked for, else the cores that this process may use."""
    if asked is not None and not 1 <= asked <= 1024:
        raise OctavoError(f"--threads {asked} is out of range; give a number from 1 to 1024.")
    return asked or usable_cores()


def choose_context(config: LlamaConfig, asked: int | None) -> int:
    """Return the context in tokens: the one asked for, within what the model was made for."""
    if asked is None:
        return config.context_length
    if not 1 <= asked <= config.context_length:
        raise OctavoError(
            f"--ctx {asked} is out of range; this model's context holds 1 to {config.context_length} tokens."
        )
    return asked


def _blocks(config: LlamaConfig, context: int, lanes: int, kv_type: KvType) -> int:
    """Blocks for every lane's whole context, bounded by half of the memory that is free now."""
    per_sequence = -(-context // BLOCK_TOKENS)
    block_bytes = 2 * config.layers * config.kv_heads * kv_type.block_bytes(config.head_dim)
    affordable = int(available_memory() // 2 // block_bytes)
    if affordable < 1:
        raise OctavoError("There is too little free memory for any context; free some, or choose a smaller model.")
    return min(per_sequence * lanes, affordable)


def _warm_up(runner: Runner) -> None:
    """Run once, so that no user waits for the last bits of compiling and page faults."""
    logits = runner.run([SequenceRows([0], 0, ([0],), True)])[0]
    if not np.isfinite(logits).all():
        raise UnsupportedModelError("The model gives logits that are not numbers; its file is damaged.")
