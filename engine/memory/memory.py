"""Everything that sequences hold of the runner, and what the prefix cache keeps of them; no clock, no threads."""

from pathlib import Path

from engine.api.request import CacheMiss, CacheReport
from engine.memory.cache_report import explain
from engine.memory.persist import load, save
from engine.memory.prefix_cache import PrefixCache
from engine.run.nodes import NO_SLOT, Held, Node, root_digest
from engine.run.runner_protocol import NO_BLOCK, ModelRunner
from engine.run.sequence import TokenSequence

# In a long prompt, a state is kept this often for prompts that begin like it.
SNAPSHOT_TOKENS = 512


class Memory:
    """Gives sequences their blocks and state slots; takes all of them back, whatever happens in between.

    The first `lanes` state slots are for running sequences, the rest for snapshots. `identity` names what persisted
    blocks belong to: the model file, the type of keys and values, and the version.
    """

    def __init__(
        self, runner: ModelRunner, lanes: int, *, cache_folder: Path | None = None, identity: str = ""
    ) -> None:
        assert runner.state_slots == 0 or runner.state_slots >= lanes
        self._runner = runner
        self._folder, self._identity = cache_folder, identity
        self._block_tokens = runner.block_tokens
        self._has_states = runner.state_slots > 0
        self._cache = PrefixCache(
            runner.groups, runner.block_tokens, range(lanes, runner.state_slots), self._has_states
        )
        self._pools = self._cache.pools
        self._free_lanes = list(reversed(range(lanes)))
        self._snapshot_every = -(-SNAPSHOT_TOKENS // self._block_tokens) * self._block_tokens
        self._has_snapshots = runner.state_slots > lanes
        self._has_windows = any(group.window for group in runner.groups)
        self.hit_tokens = 0
        self.looked_up_tokens = 0

    # Figures

    @property
    def blocks(self) -> int:
        """Blocks of all groups."""
        return sum(pool.n_blocks for pool in self._pools)

    @property
    def free_blocks(self) -> int:
        """Blocks that a sequence could get; those that the prefix cache would give up are among them."""
        return sum(pool.available_blocks for pool in self._pools)

    @property
    def cached_blocks(self) -> int:
        """Blocks that the prefix cache holds and no sequence uses."""
        return sum(pool.cached_blocks for pool in self._pools)

    @property
    def evicted_blocks(self) -> int:
        """Blocks that the prefix cache has dropped to make room."""
        return self._cache.evicted_blocks

    # Room

    def blocks_for(self, tokens: int) -> int:
        """How many blocks of a group hold `tokens` positions."""
        return -(-tokens // self._block_tokens)

    def fits(self, tokens: int) -> bool:
        """Whether one sequence alone could ever hold so many positions; one row at a time, if need be."""
        return all(
            pool.n_blocks >= self._most_blocks(tokens, group.window)
            for pool, group in zip(self._pools, self._runner.groups, strict=True)
        )

    def has_room(self, tokens: int) -> bool:
        """Whether a new sequence could have blocks for so many positions now, whatever the cache holds of it."""
        return all(
            pool.available_blocks >= self._most_blocks(tokens, group.window)
            for pool, group in zip(self._pools, self._runner.groups, strict=True)
        )

    def reach(self, sequence: TokenSequence) -> int:
        """Up to how many positions grow() could give a sequence blocks now."""
        return min(
            (len(table) + pool.available_blocks) * self._block_tokens
            for table, pool in zip(sequence.held.tables, self._pools, strict=True)
        )

    def _most_blocks(self, tokens: int, window: int) -> int:
        """Blocks that a sequence refers to at once, if it goes on row by row."""
        return min(self.blocks_for(tokens), self.blocks_for(window - 1) + 1) if window else self.blocks_for(tokens)

    # The life of a sequence

    def attach(self, sequence: TokenSequence) -> None:
        """Give a sequence that gets a lane its state slot, and what the prefix cache holds of its tokens.

        At least its last token stays to be computed. A preempted sequence begins again in the same way.
        """
        held = sequence.held
        assert not held.path
        root = self._cache.root(_digest_of(sequence))
        self._cache.use(root)
        held.path, held.begins = [root], [0] * len(self._pools)
        held.tables = tuple([] for _ in self._pools)
        held.state_slot = self._free_lanes.pop()
        try:
            taken = self._take_cached(sequence)
            if not sequence.standing.preemptions:
                self.looked_up_tokens += sequence.prompt_tokens
                self._note_taken(sequence, taken)
        except BaseException:
            self.release(sequence)
            raise

    def catch_up(self, sequence: TokenSequence) -> int:
        """Give a sequence what others have computed of its tokens since it was attached; returns the tokens gained.

        To be called before rows are planned, while more than one token is pending. So of answers to one prompt, and of
        equal prompts that arrived together, only the first computes what they share.
        """
        taken = self._take_cached(sequence)
        if taken and not sequence.standing.preemptions:
            self._note_taken(sequence, taken)
        return taken

    def holds(self, sequence: TokenSequence, tokens: int) -> bool:
        """Whether a sequence has blocks for positions below `tokens`."""
        tables = sequence.held.tables
        return bool(tables) and tokens <= len(tables[0]) * self._block_tokens

    def grow(self, sequence: TokenSequence, tokens: int) -> bool:
        """Give a sequence blocks for positions below `tokens`; False, and nothing taken, if there are too few."""
        if self.reach(sequence) < tokens:
            return False
        for group, table in enumerate(sequence.held.tables):
            for _ in range(self.blocks_for(tokens) - len(table)):
                table.append(NO_BLOCK)  # before the block is taken, so that no failure can lose it
                table[-1] = self._cache.take(group)
        return True

    def chunk_end(self, sequence: TokenSequence, end: int) -> int:
        """Where rows planned up to `end` must stop, so that the state there can be kept."""
        if not self._has_snapshots:
            return end
        held, step = sequence.held, self._snapshot_every
        stops = (held.fork, self._last_boundary(sequence), (held.computed // step + 1) * step)
        return min([stop for stop in stops if held.computed < stop < end], default=end)

    def advance(self, sequence: TokenSequence, rows: int) -> None:
        """Note that the next rows of a sequence were computed.

        Others find its full blocks from now on, a state that is worth a snapshot is kept, and blocks that no later row
        sees are given back.
        """
        held = sequence.held
        held.computed += rows
        if held.computed >= len(held.path) * self._block_tokens:
            self._register(sequence)
        if self._has_snapshots:
            self._snapshot(sequence)
        if self._has_windows:
            self._give_back(held)

    def release(self, sequence: TokenSequence) -> None:
        """Take back all that a sequence holds, if it holds anything; what the tree has of it stays cached."""
        held = sequence.held
        if not held.path:
            return
        end = held.path[-1]
        if held.computed // self._block_tokens == end.depth and not end.is_gone:
            self._cache.note_tail(end, self._cache.block_after(end, _keys(sequence)))
        self._release(held)

    def forget(self, sequence: TokenSequence) -> None:
        """Take back all that a sequence holds after a fault: nothing that it computed is believed any more."""
        held = sequence.held
        if not held.path:
            return
        if held.added_from is not None:
            self._cache.detach(held.path[held.added_from])
        for node in list(held.path[-1].children.values()):
            self._cache.settle(node)  # the fault may have come between making it and filling it
        self._release(held)

    def forget_hit(self, sequence: TokenSequence) -> None:
        """A sequence loses its lane before its first rows: what it finds next time counts as its first hit."""
        sequence.held.cached_tokens = 0

    def drop_cached(self, sequence: TokenSequence) -> None:
        """Drop all that is cached of the sequence's division; no running sequence may belong to that division."""
        self._cache.drop_root(_digest_of(sequence))

    def _release(self, held: Held) -> None:
        for group, table in enumerate(held.tables):
            for index in range(len(table)):
                self._put(held, group, index, NO_BLOCK)
        for node in reversed(held.path):
            self._cache.leave(node)
        self._free_lanes.append(held.state_slot)
        held.clear()

    # What outlives the process

    def load(self) -> None:
        """Fill the prefix cache with what the last process saved, as far as that can be believed; before any attach."""
        if self._folder is not None:
            load(self._cache, self._runner, self._folder, self._identity)

    def save(self) -> None:
        """Write the prefix cache to its folder, if it has one."""
        if self._folder is not None:
            save(self._cache, self._runner, self._folder, self._identity)

    # The prefix cache

    def _take_cached(self, sequence: TokenSequence) -> int:
        """Go on from where the cached prefix ends, if that is beyond what is computed; returns the tokens gained."""
        if sequence.needs_whole_prompt:
            return 0
        held = sequence.held
        here = len(held.path) - 1
        unbroken = [here - begin for begin in held.begins]
        nodes, alike = self._cache.hit(held.path[-1], _keys(sequence), unbroken)
        if held.computed == 0:
            held.fork = alike * self._block_tokens
        position = nodes[-1].depth * self._block_tokens if nodes else 0
        if position <= held.computed:
            return 0
        for index, node in enumerate(nodes, here):
            self._adopt(held, index, node, position)
        if self._has_states:
            self._runner.copy_state(nodes[-1].state, held.state_slot)
            self._cache.touch_state(nodes[-1])
        gained, held.computed = position - held.computed, position
        self._give_back(held)
        return gained

    def _adopt(self, held: Held, index: int, node: Node, position: int) -> None:
        """Refer to a node's blocks, except those that rows from `position` on do not see."""
        self._join(held, node)
        for group, table in enumerate(held.tables):
            if index == len(table):
                table.append(NO_BLOCK)
            is_seen = index >= self._cache.first_seen(group, position)
            self._put(held, group, index, self._cache.share(node, group) if is_seen else NO_BLOCK)

    def _note_taken(self, sequence: TokenSequence, taken: int) -> None:
        held = sequence.held
        taken = min(taken, sequence.prompt_tokens - held.cached_tokens)
        self.hit_tokens += taken
        held.cached_tokens += taken
        if sequence.request.explains_cache:
            held.cache_report = self._report(sequence)

    def _report(self, sequence: TokenSequence) -> CacheReport:
        if sequence.needs_whole_prompt:
            return CacheReport(0, 0, CacheMiss.OFF)
        held, prompt = sequence.held, _keys(sequence)[: sequence.prompt_tokens]
        return explain(self._cache, held.path[0], prompt, held.cached_tokens, self._block_tokens)

    def _register(self, sequence: TokenSequence) -> None:
        """Put the blocks that have become full into the tree, or refer to those that are there already."""
        held = sequence.held
        for index in range(len(held.path) - 1, held.computed // self._block_tokens):
            node = self._cache.add_child(held.path[-1], self._cache.block_after(held.path[-1], _keys(sequence)))
            if node is None:
                return
            self._join(held, node)
            for group, table in enumerate(held.tables):
                if table[index] == NO_BLOCK:
                    continue
                if node.blocks[group] == NO_BLOCK:
                    self._mark_added(held)
                    self._cache.hold(node, group, table[index])
                elif node.blocks[group] != table[index]:  # the same bits, by the laws of determinism
                    self._put(held, group, index, self._cache.share(node, group))

    def _snapshot(self, sequence: TokenSequence) -> None:
        """Keep the state where prompts part, where the last full block ends, at regular places, and at the end."""
        held = sequence.held
        position, node = held.computed, held.path[-1]
        if position != node.depth * self._block_tokens or node.state != NO_SLOT:
            return
        if position % self._snapshot_every == 0 or position in (held.fork, self._last_boundary(sequence)):
            self._keep_state(held, node)
        elif sequence.pending == 0 and self._keep_state(held, node, held.rolling):
            held.rolling = node

    def _keep_state(self, held: Held, node: Node, reusing: Node | None = None) -> bool:
        self._cache.snapshot(node, lambda slot: self._runner.copy_state(held.state_slot, slot), reusing)
        if node.state == NO_SLOT:
            return False
        self._mark_added(held)
        return True

    def _give_back(self, held: Held) -> None:
        """Refer no more to blocks that no later row sees."""
        for group in range(len(held.tables)):
            first = self._cache.first_seen(group, held.computed)
            for index in range(held.begins[group], first):
                self._put(held, group, index, NO_BLOCK, was_passed=True)
            held.begins[group] = max(first, held.begins[group])

    def _put(self, held: Held, group: int, index: int, block: int, *, was_passed: bool = False) -> None:
        """Put a block, or none, into a table in place of what is there."""
        table = held.tables[group]
        old, table[index] = table[index], block
        if old != NO_BLOCK:
            node = held.path[index + 1] if index + 1 < len(held.path) else None
            self._cache.release(group, old, node, was_passed=was_passed)

    def _join(self, held: Held, node: Node) -> None:
        held.path.append(node)
        self._cache.use(node)

    def _mark_added(self, held: Held) -> None:
        """Note that the last node of the path has something of this sequence."""
        if held.added_from is None:
            held.added_from = len(held.path) - 1

    def _last_boundary(self, sequence: TokenSequence) -> int:
        """The end of the last full block that an equal prompt could go on from."""
        return (len(sequence.tokens) - 1) // self._block_tokens * self._block_tokens


def _keys(sequence: TokenSequence) -> list[int]:
    """What the prefix cache knows the sequence's tokens by."""
    return sequence.request.prompt.cache_keys(sequence.tokens)


def _digest_of(sequence: TokenSequence) -> bytes:
    return root_digest(sequence.request.caller, sequence.request.cache_salt)
