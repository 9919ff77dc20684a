"""The chain of full blocks that a sequence begins with, as nodes of a tree that all sequences of one caller share."""

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Optional

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
    state: int = NO_SLOT  # the slot that holds the recurrent state at its end
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


def root_digest(caller: bytes, salt: str) -> bytes:
    """What the chains of a caller and salt begin with; nothing else of the two is kept."""
    return _digest(b"root", len(caller).to_bytes(8, "little"), caller, salt.encode("utf-8", "surrogatepass"))


def block_digest(parent: bytes, tokens: Iterable[int]) -> bytes:
    """The digest of a chain that goes on with a block of tokens."""
    return _digest(b"block", parent, array("q", tokens).tobytes())


def _digest(kind: bytes, *parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES, person=kind).digest()
