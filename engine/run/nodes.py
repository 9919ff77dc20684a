"""Nodes of the tree of cached blocks, their digests, and what one sequence holds.

A sequence begins with a chain of full blocks. All sequences of one caller share the tree of these chains.
"""

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Optional

from engine.api.request import CacheReport
from engine.run.runner_protocol import NO_BLOCK

DIGEST_BYTES = 32
NO_SLOT = -1  # of a node: no state was kept at its end


@dataclass(eq=False, slots=True)
class Node:
    """A block of tokens that follow those of its parent, and what the runner still holds of them.

    The root of a caller and salt has no tokens. A node that was taken out of the tree has no parent either.
    """

    parent: Optional["Node"]
    digest: bytes  # of all tokens up to its end, and of the root
    tokens: tuple[int, ...]
    depth: int  # blocks up to its end
    blocks: list[int]  # of each group, or NO_BLOCK
    state: int = NO_SLOT  # the slot that holds the state at its end
    children: dict[bytes, "Node"] = field(default_factory=dict)
    users: int = 0  # sequences that begin with it
    used_at: float = 0.0  # the clock of eviction when its last user left
    is_shared: bool = False  # more than one sequence began with it
    tails: list[tuple[int, ...]] = field(default_factory=list)  # how sequences ended that filled no further block

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept of it."""
        return self.state == NO_SLOT and all(block == NO_BLOCK for block in self.blocks)

    @property
    def is_gone(self) -> bool:
        """Whether it was taken out of the tree."""
        return self.parent is None and self.depth > 0


@dataclass(eq=False, slots=True)
class Held:
    """What a sequence has of the memory, which alone writes it.

    Blocks, a state slot and a path in the tree while the sequence has a lane; else nothing.

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


def root_digest(caller: bytes, salt: str) -> bytes:
    """What the chains of a caller and salt begin with; nothing else of the two is kept."""
    return _digest(b"root", len(caller).to_bytes(8, "little"), caller, salt.encode("utf-8", "surrogatepass"))


def block_digest(parent: bytes, tokens: Iterable[int]) -> bytes:
    """The digest of a chain that goes on with a block of tokens."""
    return _digest(b"block", parent, array("q", tokens).tobytes())


def _digest(kind: bytes, *parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES, person=kind).digest()
