"""Drives a Memory with a scripted runner, and checks that every block, slot and node is accounted for."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from engine.api.prompt import Prompt
from engine.memory.memory import Memory
from engine.run.nodes import NO_SLOT, Node
from engine.run.runner_protocol import NO_BLOCK, SequenceRows
from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from tests.engine.scripted import ScriptedRunner, a_request, hashed_logits

BLOCK_TOKENS = 4


class MemoryBench:
    """A runner, its memory, and the sequences that have a lane."""

    def __init__(self, *, lanes: int = 3, cache_folder: Path | None = None, identity: str = "", **runner: Any) -> None:
        self.runner = ScriptedRunner(**{"block_tokens": BLOCK_TOKENS, "context_length": 256, **runner})
        self.lanes = lanes
        self.memory = Memory(self.runner, lanes, cache_folder=cache_folder, identity=identity)
        self.running: list[TokenSequence] = []

    def start(self, prompt: tuple[int, ...] | Prompt, **request: Any) -> TokenSequence:
        """Give a new sequence a lane."""
        asked = a_request(prompt, **request)
        sequence = TokenSequence(asked, 200, TokenChooser(asked))
        self.resume(sequence)
        return sequence

    def resume(self, sequence: TokenSequence) -> None:
        """Give a sequence a lane, as for the first time or after it was preempted."""
        self.memory.attach(sequence)
        self.running.append(sequence)

    def step(self, sequence: TokenSequence, rows: int = 64) -> bool:
        """Compute some of the pending tokens, and append the next one after the last; False without memory for it."""
        end = self.memory.chunk_end(sequence, min(sequence.computed + rows, len(sequence.tokens)))
        assert sequence.computed < end
        if not self.memory.grow(sequence, end):
            return False
        fed = sequence.tokens[sequence.computed : end]
        batch = [SequenceRows(fed, sequence.computed, sequence.held.tables, 1, state_slot=sequence.held.state_slot)]
        (logits,) = self.runner.run(batch)
        assert np.array_equal(logits, hashed_logits(tuple(sequence.tokens[:end])))
        self.memory.advance(sequence, len(fed))
        if not sequence.pending:
            sequence.tokens.append(int(logits.argmax()))
        return True

    def generate(self, sequence: TokenSequence, tokens: int, rows: int = 64) -> TokenSequence:
        """Go on until so many tokens are new."""
        while sequence.new_tokens < tokens:
            assert self.step(sequence, rows)
        return sequence

    def end(self, sequence: TokenSequence) -> None:
        """Take the lane away."""
        self.memory.release(sequence)
        self.running.remove(sequence)

    def fault(self, sequence: TokenSequence) -> None:
        """Take the lane away, and all that it computed."""
        self.memory.forget(sequence)
        self.running.remove(sequence)

    def answer(self, prompt: tuple[int, ...] | Prompt, tokens: int = 2, **request: Any) -> tuple[int, ...]:
        """A whole request: the prompt and its answer."""
        sequence = self.generate(self.start(prompt, **request), tokens)
        self.end(sequence)
        return tuple(sequence.tokens)

    def cached(self, prompt: tuple[int, ...] | Prompt, **request: Any) -> int:
        """How many tokens a request would find, if it came now and left at once."""
        sequence = self.start(prompt, **request)
        self.end(sequence)
        return sequence.held.cached_tokens

    def cached_then_answered(self, prompt: tuple[int, ...] | Prompt) -> int:
        """How many tokens a request finds that runs to its end."""
        sequence = self.generate(self.start(prompt), 2)
        self.end(sequence)
        return sequence.held.cached_tokens

    def nodes(self) -> list[Node]:
        return list(self.memory._cache.nodes())

    def check(self) -> None:
        """Everything is exactly one of free, cached and referred to, and says what its tokens are."""
        for group in range(len(self.runner.groups)):
            self._check_blocks(group)
        self._check_slots()
        self._check_nodes()

    def _check_blocks(self, group: int) -> None:
        pool = self.memory._pools[group]
        named = Counter(b for sequence in self.running for b in sequence.held.tables[group] if b != NO_BLOCK)
        kept = Counter(node.blocks[group] for node in self.nodes() if node.blocks[group] != NO_BLOCK)
        blocks = range(pool.n_blocks)
        assert [pool.references(block) for block in blocks] == [named[block] for block in blocks]
        assert [bool(pool._is_kept[block]) for block in blocks] == [kept[block] == 1 for block in blocks]
        assert max(kept.values(), default=0) <= 1
        assert sorted(pool._free) == [block for block in blocks if not named[block] and not kept[block]]
        assert pool.cached_blocks == sum(not named[block] for block in kept)
        for sequence in self.running:
            for block in sequence.held.tables[group][sequence.computed // BLOCK_TOKENS :]:
                assert named[block] == 1 and not kept[block], "others could see what is written here"
        idle = {node for node in self.nodes() if node.blocks[group] != NO_BLOCK and not named[node.blocks[group]]}
        if self.runner.groups[group].window:
            assert set(self.memory._cache._windowed[group]._places) == idle

    def _check_slots(self) -> None:
        cache, memory = self.memory._cache, self.memory
        states = [node.state for node in self.nodes() if node.state != NO_SLOT]
        assert sorted(states + cache._free_slots) == list(range(self.lanes, self.runner.state_slots))
        assert {node for node in self.nodes() if node.state != NO_SLOT} == set(cache._states._places)
        assert sorted([s.held.state_slot for s in self.running] + memory._free_lanes) == list(range(self.lanes))

    def _check_nodes(self) -> None:
        cache = self.memory._cache
        users = Counter(node for sequence in self.running for node in sequence.held.path)
        for node in self.nodes():
            assert node.users == users[node]
            assert node.users or node.children or not node.is_empty
            assert (node in cache._leaves) == (not node.users and not node.children)
            assert not cache.was_evicted(node.digest)
            self._check_content(node)
        for root in cache.roots.values():
            assert root.users == users[root]
            assert root.users or root.children

    def _check_content(self, node: Node) -> None:
        for group, block in enumerate(node.blocks):
            if block != NO_BLOCK:
                assert tuple(self.runner._caches[group][block]) == node.tokens
        if node.state != NO_SLOT:
            told = self.runner._states[node.state]
            assert tuple(told[told != -1]) == prefix_of(node)


def prefix_of(node: Node) -> tuple[int, ...]:
    """All tokens up to a node's end."""
    return node.tokens if node.parent is None else prefix_of(node.parent) + node.tokens
