"""The pool of blocks that hold attention keys and values; who gets them is not decided here."""

from collections.abc import Iterable


class BlockPool:
    """Hands out the block numbers 0 .. n_blocks - 1, each to one owner at a time."""

    def __init__(self, n_blocks: int, block_tokens: int) -> None:
        assert n_blocks > 0 and block_tokens > 0
        self.n_blocks = n_blocks
        self.block_tokens = block_tokens
        self._free = list(reversed(range(n_blocks)))
        self._is_free = bytearray(b"\x01" * n_blocks)

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def capacity_tokens(self) -> int:
        return self.n_blocks * self.block_tokens

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks hold `tokens` positions."""
        return -(-tokens // self.block_tokens)

    def try_allocate(self, count: int) -> list[int] | None:
        """Return `count` blocks, or None and take nothing if there are fewer."""
        if count > len(self._free):
            return None
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._is_free[block] = 0
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Take blocks back."""
        for block in blocks:
            assert not self._is_free[block], f"block {block} is freed twice"
            self._is_free[block] = 1
            self._free.append(block)
