"""How the memory of keys, values and recurrent states is shared out, before any of it is allocated.

A group of layers with a window keeps of each running sequence only what its rows see, so it gets that for every lane,
and a part of the rest for the prefix cache. The group that sees all positions gets what is left: its blocks are what
long contexts need.
"""

from dataclasses import dataclass

from engine.errors import OctavoError
from engine.families.emit.attention_state import KvLayers

# Of what the lanes' windows and states leave: for windows and states in the prefix cache.
_CACHED_SHARE = 4
_SNAPSHOTS_PER_LANE = 4  # of recurrent states, for the prefix cache
_SPARE_BLOCKS = 2  # of a lane's window: a window and a chunk may each begin within a block


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How much of each kind there will be."""

    n_blocks: tuple[int, ...]  # of each group
    state_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What decides how many blocks and slots are wanted."""

    groups: tuple[KvLayers, ...]
    state_bytes: int  # of one sequence; 0: the model has no recurrent layers
    context: int  # tokens of the longest sequence
    lanes: int
    max_rows: int

    def least(self) -> MemoryPlan:
        """What the lanes cannot do without."""
        blocks = (self._running(group) * self.lanes if group.window else 1 for group in self.groups)
        return MemoryPlan(tuple(blocks), self.lanes if self.state_bytes else 0)

    def most(self, group: KvLayers) -> int:
        """Blocks that lanes with whole contexts can use."""
        return group.blocks(self.context) * self.lanes

    def nbytes(self, plan: MemoryPlan) -> int:
        """Bytes of all that is planned."""
        blocks = sum(group.block_bytes * count for group, count in zip(self.groups, plan.n_blocks, strict=True))
        return blocks + plan.state_slots * self.state_bytes

    def context_of(self, plan: MemoryPlan) -> int:
        """The context that the blocks of layers which see all positions hold, no longer than the one wanted."""
        counts = zip(self.groups, plan.n_blocks, strict=True)
        return min([self.context, *(n * group.block_positions for group, n in counts if not group.window)])

    def _running(self, group: KvLayers) -> int:
        """Blocks that a lane can need at once of a group with a window."""
        seen = group.blocks(group.window) + group.blocks(self.max_rows) + _SPARE_BLOCKS
        return min(group.blocks(self.context), seen)


def plan_memory(needs: MemoryNeeds, budget: int, *, fixed: bool) -> MemoryPlan:
    """Share `budget` bytes out; all of it if it is `fixed`, else no more than lanes with whole contexts can use.

    Raises OctavoError where the budget does not hold what the lanes need.
    """
    least = needs.least()
    left = budget - needs.nbytes(least)
    if left < 0:
        raise _too_little(budget, needs.nbytes(least), fixed)
    cached = left // _CACHED_SHARE
    snapshots = _snapshots(needs, cached)
    left -= snapshots * needs.state_bytes
    n_blocks = list(least.n_blocks)
    for index in _windows_first(needs.groups):
        group = needs.groups[index]
        share = min(cached, left) if group.window and len(needs.groups) > 1 else left
        more = share // group.block_bytes
        if not fixed:
            more = max(0, min(more, needs.most(group) - n_blocks[index]))
        n_blocks[index] += more
        left -= more * group.block_bytes
    return MemoryPlan(tuple(n_blocks), least.state_slots + snapshots)


def _snapshots(needs: MemoryNeeds, cached: int) -> int:
    """Recurrent states that the prefix cache gets out of `cached` bytes."""
    if not needs.state_bytes:
        return 0
    return min(cached // needs.state_bytes, needs.lanes * _SNAPSHOTS_PER_LANE)


def _windows_first(groups: tuple[KvLayers, ...]) -> list[int]:
    """Numbers of the groups; the one that sees all positions comes last, and gets the rest."""
    sliding = [index for index, group in enumerate(groups) if group.window]
    return sliding + [index for index, group in enumerate(groups) if not group.window]


def _too_little(budget: int, smallest: int, fixed: bool) -> OctavoError:
    if fixed:
        return OctavoError(
            f"{budget} bytes do not hold the keys, values and states of this many lanes, which take {smallest} bytes;"
            " give more memory, or use fewer lanes."
        )
    return OctavoError("There is too little free memory for any context; free some, or choose a smaller model.")
