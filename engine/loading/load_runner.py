"""Loads a model into a runner: memory is planned, kernels are compiled, weights are read and repacked.

The order is that of what can fail and of what takes time: the header is checked first, and the weights are read last.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api.config import EngineConfig, bytes_of
from engine.errors import OctavoError, UnsupportedModelError
from engine.families.emit.run_state import Capacity
from engine.families.family import FamilyConfig
from engine.families.registry import Blueprint, read_blueprint
from engine.loading.compile_kernels import compile_kernels
from engine.loading.crossover import measured_crossover
from engine.loading.memory_plan import MemoryNeeds, MemoryPlan, plan_memory
from engine.loading.runner import Runner
from engine.machine import available_memory
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.weights_file import WeightBytes, WeightsFile
from engine.weights.load import WeightLoader
from kernels.attention.kv_cache import KV_TYPES, KvType
from kernels.machine.cpu import usable_cores
from kernels.matmul.activations import NEVER
from kernels.simd.tiers import TIERS_BY_NAME, supported_tiers

logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
# Rows of logits a step: the chunk in which a prompt is scored. Memory that no step touches is never taken.
LOGIT_ROWS = 64
# Of what the weights leave, keys and values take this much at most: steps and requests need memory too.
_KV_SHARE = 7 / 8
_LEAST_KV_SHARE = 1 / 8  # of what is free, where the weights leave nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRunner:
    """A runner and what is known about it."""

    runner: Runner
    file: WeightsFile  # the model as its family reads it
    digests: Mapping[str, bytes]  # of that file's tensors, by name
    isa: str
    crossover: int | None  # rows from which matmuls take matrix tiles; None: they never do
    weights: WeightBytes  # that a step reads: not a draft's
    weight_memory: Sequence[NDArray[np.uint8]]  # where matrices lie

    @property
    def bytes_per_token(self) -> int:
        """Weights that a decode step of one sequence reads."""
        return round(self.weights.of_step(1))


def load_runner(file: WeightsFile, options: EngineConfig, progress: Progress) -> LoadedRunner:
    """Build the runner of a model file, with all that it will run compiled and warm."""
    try:
        return _load_runner(file, options, progress)
    except MemoryError as error:
        raise OctavoError(
            f"There is too little memory for {file.path}; free some, use fewer --lanes, or choose a smaller model."
        ) from error


def _load_runner(file: WeightsFile, options: EngineConfig, progress: Progress) -> LoadedRunner:
    blueprint = read_blueprint(file)
    for warning in blueprint.warnings:
        logger.warning("%s: %s", file.path, warning)
    isa = choose_isa(options.isa)
    tier = TIERS_BY_NAME[isa].number
    capacity = _prepare(blueprint, options, tier, progress)
    loading = WeightLoader(
        blueprint.file, activations=options.activations, progress=lambda done: progress("Loading weights", done)
    )
    with loading as weights:
        built = blueprint.family.build(blueprint.config, weights, capacity, tier)
        weight_bytes = weights.finish()
    runner = Runner(built, capacity, blueprint.config.vocabulary)
    try:
        _warm_up(runner)
    except OctavoError:
        runner.close()
        raise
    return LoadedRunner(
        runner=runner,
        file=blueprint.file,
        digests=loading.digests,
        isa=isa,
        crossover=None if capacity.crossover == NEVER else capacity.crossover,
        weights=built.step_bytes or weight_bytes,
        weight_memory=loading.memory,
    )


def _prepare(blueprint: Blueprint, options: EngineConfig, tier: int, progress: Progress) -> Capacity:
    """Plan memory, compile kernels and measure them: all that comes before the weights are read."""
    file, config, kv_type = blueprint.file, blueprint.config, choose_kv_type(options.kv_type)
    threads = choose_threads(options.threads)
    needs = MemoryNeeds(
        groups=config.kv_layers(kv_type),
        state_bytes=config.state_bytes,
        context=choose_context(config, options.context_length),
        lanes=options.lanes,
        max_rows=options.max_rows,
    )
    memory = _plan_memory(needs, options.kv_memory, file.nbytes)
    own_kernels = blueprint.family.own_kernels(config, tier)
    compile_kernels(
        file, options.activations, kv_type, tier, own_kernels, lambda done: progress("Compiling kernels", done)
    )
    return Capacity(
        max_rows=options.max_rows,
        max_logit_rows=options.max_logit_rows or max(options.lanes, LOGIT_ROWS),
        n_blocks=memory.n_blocks,
        context_length=needs.context_of(memory),
        threads=threads,
        crossover=measured_crossover(file, options.activations, tier),
        kv_type=kv_type,
        state_slots=memory.state_slots,
    )


def choose_isa(asked: str | None) -> str:
    """Return the instruction tier to run with; OctavoError where the processor lacks the one asked for."""
    there = supported_tiers()
    if asked is None:
        return there[0]
    if asked not in TIERS_BY_NAME:
        raise OctavoError(f"There is no instruction tier {asked!r}; --isa takes one of {', '.join(TIERS_BY_NAME)}.")
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


def choose_context(config: FamilyConfig, asked: int | None) -> int:
    """Return the context in tokens: the one asked for, within what the model was made for."""
    if asked is None:
        return config.context_length
    if not 1 <= asked <= config.context_length:
        raise OctavoError(
            f"--ctx {asked} is out of range; this model's context holds 1 to {config.context_length} tokens."
        )
    return asked


def _plan_memory(needs: MemoryNeeds, kv_memory: str | None, weights: int) -> MemoryPlan:
    """The plan for the memory that was asked for.

    None: half of what is free, but no more than the weights leave of it, and than can be used.
    """
    free = available_memory()
    if weights > free:
        logger.warning(
            "The model's weights take %.1f GB, and %.1f GB of memory are free: the system may end this process;"
            " raise its limit, or choose a smaller model.",
            weights / 1e9,
            free / 1e9,
        )
    if kv_memory is None:
        left = max(int((free - weights) * _KV_SHARE), int(free * _LEAST_KV_SHARE))
        return plan_memory(needs, min(free // 2, left), fixed=False)
    asked = bytes_of(kv_memory, free)
    if asked > free:
        raise OctavoError(f"--kv-memory asks for {asked} bytes, and {free} are free; ask for less.")
    return plan_memory(needs, asked, fixed=True)


def _warm_up(runner: Runner) -> None:
    """Run once, so that no user waits for the last bits of compiling and page faults."""
    logits = runner.run([SequenceRows([0], 0, ([0],) * len(runner.groups), 1)])[0]
    if not np.isfinite(logits).all():
        raise UnsupportedModelError("The model gives logits that are not numbers; its file is damaged.")
