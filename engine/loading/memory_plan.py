"""How the memory of keys, values and recurrent states is shared out.

A group of layers with a window keeps of each running sequence only what its rows see, so it gets that for every lane,
and a part of the rest for the prefix cache. The group that sees all positions gets what is left: its blocks are what
long contexts need.
"""

from dataclasses import dataclass

from engine.errors import OctavoError
from engine.families.family import FamilyConfig, KvLayers
from kernels.attention.kv_cache import BLOCK_TOKENS, KvType

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
