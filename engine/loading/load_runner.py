"""Loads a model: memory is planned, kernels are compiled, weights are read, and a runner is made.

A model file turned into a runner: picks the family by architecture, compiles its kernels, repacks its weights.

How the memory of keys, values and recurrent states is shared out.

A group of layers with a window keeps of each running sequence only what its rows see, so it gets that for every lane,
and a part of the rest for the prefix cache. The group that sees all positions gets what is left: its blocks are what
long contexts need.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import EngineConfig, bytes_of
from engine.emit.run_state import Capacity
from engine.errors import OctavoError, UnsupportedModelError
from engine.families.family import FamilyConfig, KvLayers
from engine.families.registry import read_blueprint
from engine.loading.compile_kernels import compile_kernels
from engine.loading.crossover import measured_crossover
from engine.machine import available_memory
from engine.run.runner import Runner
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.weights_file import WeightBytes, WeightsFile
from engine.weights.load import WeightLoader
from kernels.attention.kv_cache import BLOCK_TOKENS, KV_TYPES, KvType
from kernels.machine.cpu import usable_cores
from kernels.matmul.activations import NEVER
from kernels.simd.tiers import TIERS_BY_NAME, supported_tiers

# Of what the lanes' windows and states leave: for windows and states in the prefix cache.
_CACHED_SHARE = 4
_SNAPSHOTS_PER_LANE = 4  # of recurrent states, for the prefix cache
_SPARE_BLOCKS = 2  # of a lane's window: a window and a chunk may each begin within a block


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What decides how many blocks are wanted."""

    config: FamilyConfig
    kv_type: KvType
    context: int  # tokens of the longest sequence
    lanes: int
    max_rows: int

    def per_sequence(self) -> int:
        """Blocks of a whole context."""
        return _blocks(self.context)

    def running(self, layers: KvLayers) -> int:
        """Blocks that a lane can need at once of a group with a window."""
        return min(self.per_sequence(), _blocks(layers.window) + _blocks(self.max_rows) + _SPARE_BLOCKS)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How much of each kind there will be."""

    n_blocks: tuple[int, ...]  # of each group
    state_slots: int


def plan_memory(needs: MemoryNeeds, budget: int, *, fixed: bool) -> MemoryPlan:
    """Share `budget` bytes out; all of it if it is `fixed`, else no more than lanes with whole contexts can use.

    Raises OctavoError where the budget does not hold what the lanes need.
    """
    groups, lanes = needs.config.kv_layers, needs.lanes
    most = None if fixed else needs.per_sequence() * lanes
    sizes = [layers.block_bytes(needs.kv_type) for layers in groups]
    blocks = [needs.running(layers) * lanes if layers.window else 1 for layers in groups]
    slots = lanes if needs.config.state_bytes else 0
    smallest = slots * needs.config.state_bytes + sum(size * count for size, count in zip(sizes, blocks, strict=True))
    left = budget - smallest
    if left < 0:
        raise _too_little(budget, smallest, fixed)
    cached = left // _CACHED_SHARE
    if needs.config.state_bytes:
        snapshots = min(cached // needs.config.state_bytes, lanes * _SNAPSHOTS_PER_LANE)
        slots, left = slots + snapshots, left - snapshots * needs.config.state_bytes
    # The group without a window comes last: it gets the rest.
    for index in sorted(range(len(groups)), key=lambda index: groups[index].window == 0):
        share = min(cached, left) if groups[index].window and len(groups) > 1 else left
        more = share // sizes[index]
        if most is not None:
            more = max(0, min(more, most - blocks[index]))
        blocks[index], left = blocks[index] + more, left - more * sizes[index]
    return MemoryPlan(tuple(blocks), slots)


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


def _too_little(budget: int, smallest: int, fixed: bool) -> OctavoError:
    if fixed:
        return OctavoError(
            f"{budget} bytes do not hold the keys, values and states of this many lanes, which take {smallest} bytes;"
            " give more memory, or use fewer lanes."
        )
    return OctavoError("There is too little free memory for any context; free some, or choose a smaller model.")


logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
# Rows of logits a step: the chunk in which a prompt is scored. Memory that no step touches is never taken.
LOGIT_ROWS = 64


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
    family, config, file = blueprint.family, blueprint.config, blueprint.file
    for warning in blueprint.warnings:
        logger.warning("%s: %s", file.path, warning)
    isa, threads, kv_type = choose_isa(options.isa), choose_threads(options.threads), choose_kv_type(options.kv_type)
    context = choose_context(config, options.context_length)
    memory = _plan_memory(config, context, options, kv_type)
    tier = TIERS_BY_NAME[isa].number
    own_kernels = family.own_kernels(config, options.activations, tier)
    compile_kernels(
        config,
        file,
        options.activations,
        kv_type,
        tier,
        own_kernels,
        lambda done: progress("Compiling kernels", done),
    )
    crossover = measured_crossover(file, options.activations, tier)
    capacity = Capacity(
        max_rows=options.max_rows,
        max_logit_rows=options.max_logit_rows or max(options.lanes, LOGIT_ROWS),
        n_blocks=memory.n_blocks,
        context_length=_affordable_context(config, context, memory),
        threads=threads,
        crossover=crossover,
        kv_type=kv_type,
        state_slots=memory.state_slots,
    )
    loading = WeightLoader(
        file, activations=options.activations, progress=lambda done: progress("Loading weights", done)
    )
    with loading as weights:
        built = family.build(config, weights, capacity, tier)
        weight_bytes = weights.finish()
    runner = Runner(built, capacity, config.vocabulary)
    try:
        _warm_up(runner)
    except OctavoError:
        runner.close()
        raise
    return LoadedRunner(
        runner=runner,
        file=file,
        digests=loading.digests,
        isa=isa,
        crossover=None if crossover == NEVER else crossover,
        weights=built.step_bytes or weight_bytes,
        weight_memory=loading.memory,
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


def _plan_memory(config: FamilyConfig, context: int, options: EngineConfig, kv_type: KvType) -> MemoryPlan:
    needs = MemoryNeeds(config=config, kv_type=kv_type, context=context, lanes=options.lanes, max_rows=options.max_rows)
    free = available_memory()
    if options.kv_memory is None:
        return plan_memory(needs, free // 2, fixed=False)
    asked = bytes_of(options.kv_memory, free)
    if asked > free:
        raise OctavoError(f"--kv-memory asks for {asked} bytes, and {free} are free; ask for less.")
    return plan_memory(needs, asked, fixed=True)


def _affordable_context(config: FamilyConfig, context: int, memory: MemoryPlan) -> int:
    """The context that the blocks of layers which see all positions hold."""
    blocks = [n_blocks for layers, n_blocks in zip(config.kv_layers, memory.n_blocks, strict=True) if not layers.window]
    return min([context, *(n_blocks * BLOCK_TOKENS for n_blocks in blocks)])


def _warm_up(runner: Runner) -> None:
    """Run once, so that no user waits for the last bits of compiling and page faults."""
    logits = runner.run([SequenceRows([0], 0, ([0],) * len(runner.groups), 1)])[0]
    if not np.isfinite(logits).all():
        raise UnsupportedModelError("The model gives logits that are not numbers; its file is damaged.")
