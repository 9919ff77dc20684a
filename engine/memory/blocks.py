"""The pool of one group's blocks, counted by reference; who gets them, and which to keep, is not decided here."""


class BlockPool:
    """Hands out the block numbers 0 .. n_blocks - 1.

    A block that nothing refers to is either free, or cached: kept for a sequence that may want what it holds.
    """

    def __init__(self, n_blocks: int) -> None:
        assert n_blocks > 0
        self.n_blocks = n_blocks
        self.cached_blocks = 0
        self._free = list(reversed(range(n_blocks)))
        self._references = [0] * n_blocks
        self._is_kept = bytearray(n_blocks)

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def available_blocks(self) -> int:
        """Blocks that a sequence could get: the cached ones would be given up for it."""
        return len(self._free) + self.cached_blocks

    def references(self, block: int) -> int:
        """How many sequences refer to a block."""
        return self._references[block]

    def is_kept(self, block: int) -> bool:
        """Whether a block stays cached once nothing refers to it."""
        return bool(self._is_kept[block])

    def take(self) -> int:
        """Return a free block, which has one reference from now on; there must be one."""
        block = self._free.pop()
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Refer to a block that is in use or cached once more."""
        assert self._references[block] or self._is_kept[block], f"block {block} holds nothing"
        self.cached_blocks -= not self._references[block]
        self._references[block] += 1

    def release(self, block: int) -> bool:
        """Refer to a block once less; True if it is cached now."""
        assert self._references[block], f"block {block} is released too often"
        self._references[block] -= 1
        if self._references[block]:
            return False
        return self._rest(block)

    def keep(self, block: int) -> None:
        """Have a block that is in use cached later on."""
        assert self._references[block] and not self._is_kept[block]
        self._is_kept[block] = 1

    def drop(self, block: int) -> None:
        """Cache a block no more, now or later."""
        assert self._is_kept[block]
        self._is_kept[block] = 0
        if not self._references[block]:
            self.cached_blocks -= 1
            self._rest(block)

    def _rest(self, block: int) -> bool:
        if self._is_kept[block]:
            self.cached_blocks += 1
            return True
        self._free.append(block)
        return False
