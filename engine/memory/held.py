"""What a sequence has of the memory. The sequence carries it; the memory alone writes it."""

from dataclasses import dataclass, field

from engine.memory.block_digest import Node
from engine.request import CacheReport


@dataclass(eq=False, slots=True)
class Held:
    """Blocks, a state slot and a path in the tree while the sequence has a lane; else empty.

    What was found in the prefix cache is kept when the lane is taken away.
    """

    computed: int = 0  # leading tokens whose keys and values are in the blocks
    tables: tuple[list[int], ...] = ()  # the block table of each group of layers
    state_slot: int = 0  # where its state is, if the model has layers with state
    path: list[Node] = field(default_factory=list)  # the root, then the node of each full block that is in the tree
    begins: list[int] = field(default_factory=list)  # of each group: blocks that no row sees any more
    fork: int = 0  # tokens that earlier sequences began with, too: their like will need the state there
    rolling: Node | None = None  # the node whose snapshot moves on as the sequence decodes
    added_from: int | None = None  # the first place of the path where the sequence added to the tree
    cached_tokens: int = 0  # of the prompt, that were in the prefix cache when the sequence first got a lane
    cache_report: CacheReport | None = None  # where the request asked for it

    def clear(self) -> None:
        """The lane is taken away."""
        self.computed, self.tables, self.state_slot = 0, (), 0
        self.path, self.begins, self.fork, self.rolling, self.added_from = [], [], 0, None, None
