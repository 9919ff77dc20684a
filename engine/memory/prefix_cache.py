"""The prefix cache: blocks and states that outlive their sequence, found by the tokens that led to them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from engine.memory.blocks import BlockPool, EvictionQueue
from engine.run.nodes import NO_SLOT, Node, block_digest
from engine.run.runner_protocol import NO_BLOCK, KvGroup

# The context at which a token's attention costs about as much as its matmuls: the cost of a block grows with its depth.
ATTENTION_TOKENS = 4096
# To make a state again costs its whole prefix. STATE_TOKENS are added, or the common beginnings of many prompts, which
# are short and often needed, would always be evicted before the ends of long prompts.
STATE_TOKENS = 512
REMEMBERED = 16384  # digests of evicted blocks, so that a miss can be told from a prompt never seen
TAILS = 4  # ends of sequences that a node remembers, likewise


@dataclass(frozen=True, slots=True)
class Age:
    """When a node was last used, and its place in each queue of eviction. Times are relative to the queues' clocks."""

    used_at: float
    places: tuple[tuple[float, int] | None, ...]  # in each queue: its rank, and a number that orders equal ranks


class PrefixCache:
    """A tree of full blocks below the root of each caller and salt.

    A block of a group that sees all positions is evicted only at the end of a chain, with all else that its node holds.
    Blocks of groups with a window, and states, are evicted one by one.
    """

    def __init__(self, groups: tuple[KvGroup, ...], block_tokens: int, snapshot_slots: range, has_states: bool) -> None:
        self.pools = tuple(BlockPool(group.n_blocks) for group in groups)
        self.roots: dict[bytes, Node] = {}
        self.evicted_blocks = 0
        self._windows = tuple(group.window for group in groups)
        self._block_tokens = block_tokens
        self._has_states = has_states
        self._leaves = EvictionQueue[Node]()  # that no sequence begins with
        self._windowed = tuple(EvictionQueue[Node]() for _ in groups)  # nodes whose block of the group nobody refers to
        self._free_slots = list(reversed(snapshot_slots))
        self._states = EvictionQueue[Node]()
        self._queues = (self._leaves, self._states, *self._windowed)
        self._evicted = OrderedDict[bytes, None]()

    # The tree

    def root(self, digest: bytes) -> Node:
        """The root of a caller and salt, which is there as long as it is used or holds anything."""
        node = self.roots.get(digest)
        if node is None:
            node = self.roots[digest] = Node(None, digest, (), 0, [])
        return node

    def follow(self, node: Node, tokens: list[int], depth: int) -> Iterator[Node]:
        """The nodes after one of `tokens` that lead on with the same tokens, up to a depth."""
        while node.depth < depth:
            block = self.block_after(node, tokens)
            child = node.children.get(block_digest(node.digest, block))
            if child is None or child.tokens != block:
                return
            yield child
            node = child

    def block_after(self, node: Node, tokens: list[int]) -> tuple[int, ...]:
        """The block of `tokens` that follows a node of theirs."""
        start = node.depth * self._block_tokens
        return tuple(tokens[start : start + self._block_tokens])

    def add_child(self, node: Node, block: tuple[int, ...]) -> Node | None:
        """The node of a block of tokens after another node, new if need be; None where the tree cannot hold it."""
        digest = block_digest(node.digest, block)
        child = node.children.get(digest)
        if child is not None:
            return child if child.tokens == block else None
        if node.is_gone:
            return None
        child = Node(node, digest, block, node.depth + 1, [NO_BLOCK] * len(self.pools))
        node.children[digest] = child
        self._leaves.discard(node)
        self._evicted.pop(digest, None)
        return child

    def was_evicted(self, digest: bytes) -> bool:
        """Whether the block that ends with this digest was there, and was dropped to make room; for a while."""
        return digest in self._evicted

    def use(self, node: Node) -> None:
        """Count a sequence that begins with a node."""
        node.users += 1
        self._leaves.discard(node)

    def leave(self, node: Node) -> None:
        """Count a sequence less; the nodes of a chain are left from its end."""
        node.users -= 1
        if not node.users:
            node.used_at = self._leaves.clock
            self.settle(node)

    def note_tail(self, node: Node, tail: tuple[int, ...]) -> None:
        """Remember how a sequence went on from a node, without filling a block."""
        if tail in node.tails:
            node.tails.remove(tail)
        node.tails = [*node.tails[1 - TAILS :], tail]

    def detach(self, node: Node) -> None:
        """Take a node and all that comes after it out of the tree; what sequences refer to stays theirs."""
        if node.is_gone:
            return
        parent, doomed = node.parent, [node]
        while doomed:
            node = doomed.pop()
            doomed += node.children.values()
            node.children.clear()
            self._take_out(node)
        assert parent is not None
        self.settle(parent)

    def drop_root(self, digest: bytes) -> None:
        """Take all out of the tree that begins with a root, which nobody uses."""
        root = self.roots.get(digest)
        for node in [] if root is None else list(root.children.values()):
            self.detach(node)

    def settle(self, node: Node) -> None:
        """Let a node that no sequence uses and no node follows be evicted; an empty one is taken out at once."""
        while not (node.users or node.children or node.is_gone):
            if not node.is_empty and (
                node in self._leaves or self._queue(self._leaves, node, self._cost(node), node.used_at)
            ):
                return
            parent = node.parent
            self._take_out(node)
            if parent is None:
                return
            node = parent

    # What nodes hold

    def hit(self, node: Node, tokens: list[int], unbroken: list[int]) -> tuple[list[Node], int]:
        """The longest chain of nodes after `node`, along `tokens`, from whose end the sequence can go on.

        unbroken[g]: contiguous blocks of group g that the sequence already holds and that end at this node.
        Also returns how many blocks of these tokens the tree knows, whether their content is kept or not: there prompts
        part.
        """
        chain, usable, unbroken = list[Node](), 0, list(unbroken)
        for child in self.follow(node, tokens, (len(tokens) - 1) // self._block_tokens):
            chain.append(child)
            child.is_shared = True
            for group, block in enumerate(child.blocks):
                unbroken[group] = 0 if block == NO_BLOCK else unbroken[group] + 1
            if self._is_usable(child, unbroken):
                usable = len(chain)
        return chain[:usable], node.depth + len(chain)

    def first_seen(self, group: int, position: int) -> int:
        """The first block of a group that a row at `position`, or a later one, sees."""
        window = self._windows[group]
        return max(0, position + 1 - window) // self._block_tokens if window else 0

    def hold(self, node: Node, group: int, block: int) -> None:
        """Keep a block that a sequence has filled with the node's tokens."""
        assert node.blocks[group] == NO_BLOCK and not node.is_gone
        self.pools[group].keep(block)
        node.blocks[group] = block

    def share(self, node: Node, group: int) -> int:
        """Add a reference to the node's block of a group."""
        block = node.blocks[group]
        self.pools[group].share(block)
        self._windowed[group].discard(node)
        return block

    def take(self, group: int) -> int:
        """A block that nothing refers to, for a sequence to fill; one must be available."""
        pool = self.pools[group]
        if not pool.free_blocks:
            self._evict_block(group)
        return pool.take()

    def release(self, group: int, block: int, node: Node | None, *, was_passed: bool) -> None:
        """Take a reference from a block, which may be the node's.

        A block that left the window while its sequence went on is worth little, unless other sequences share it.
        """
        if self.pools[group].release(block) and self._windows[group]:
            assert node is not None and node.blocks[group] == block
            cost = 0 if was_passed and not node.is_shared else self._cost(node)
            if not self._queue(self._windowed[group], node, cost):
                self._drop_block(node, group)

    # Snapshots of states

    @property
    def snapshots(self) -> int:
        """States that are kept."""
        return len(self._states)

    def snapshot(self, node: Node, copy_to: Callable[[int], None], reusing: Node | None = None) -> None:
        """Keep the state at a node's end, if it is not kept yet and there is a slot: `reusing` gives up its own."""
        if node.is_gone:
            return
        if node.state == NO_SLOT:
            if reusing is not None and reusing.state != NO_SLOT:
                self._drop_state(reusing)
            if not self._free_slots and not self._states:
                return
            slot = self._free_slots.pop() if self._free_slots else self._evicted_slot()
            try:
                copy_to(slot)
            except BaseException:
                self._free_slots.append(slot)
                raise
            node.state = slot
        self.touch_state(node)

    def touch_state(self, node: Node) -> None:
        """The state of a node was used."""
        if not self._queue(self._states, node, STATE_TOKENS + node.depth * self._block_tokens):
            self._drop_state(node)

    # What outlives the process

    @property
    def free_slots(self) -> int:
        """Slots that hold no snapshot."""
        return len(self._free_slots)

    def leaves(self) -> list[Node]:
        """The ends of all chains, those worth keeping first."""
        ends = [node for node in self.nodes() if not node.children]
        return sorted(ends, key=lambda node: (node.users > 0, node.used_at + self._cost(node)), reverse=True)

    def age(self, node: Node) -> Age:
        """How long ago a node was used, and where it stands among those that may be evicted."""
        since = 0.0 if node.users else node.used_at - self._leaves.clock
        return Age(since, tuple(queue.place(node) for queue in self._queues))

    def put_in_order(self, ages: dict[Node, Age]) -> None:
        """Queue the nodes that no sequence uses in the order that `ages` gives."""
        for index, queue in enumerate(self._queues):
            places = [(place, node) for node, age in ages.items() if (place := age.places[index]) is not None]
            for (rank, _), node in sorted(places, key=lambda one: one[0]):
                if node in queue:
                    queue.add(node, rank)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, each after its parent."""
        ahead = list(self.roots.values())
        while ahead:
            node = ahead.pop()
            ahead += node.children.values()
            if node.depth:
                yield node

    # How things go

    def _cost(self, node: Node) -> float:
        return 1 + node.depth * self._block_tokens / ATTENTION_TOKENS

    def _queue(self, queue: EvictionQueue[Node], node: Node, cost: float, used_at: float | None = None) -> bool:
        """Let something of a node be evicted. False if memory fails: the caller must drop what is in no queue."""
        with suppress(MemoryError):
            queue.add(node, cost, used_at)
        return node in queue

    def _is_usable(self, node: Node, unbroken: list[int]) -> bool:
        if self._has_states and node.state == NO_SLOT:
            return False
        end = node.depth * self._block_tokens
        return all(count >= node.depth - self.first_seen(group, end) for group, count in enumerate(unbroken))

    def _evict_block(self, group: int) -> None:
        if self._windows[group]:
            node = self._windowed[group].pop()
            self._drop_block(node, group)
            self.evicted_blocks += 1
            self.settle(node)
            return
        node = self._leaves.pop()
        self._evicted[node.digest] = None
        if len(self._evicted) > REMEMBERED:
            self._evicted.popitem(last=False)
        self.evicted_blocks += sum(block != NO_BLOCK for block in node.blocks)
        parent = node.parent
        self._take_out(node)
        assert parent is not None
        self.settle(parent)

    def _take_out(self, node: Node) -> None:
        """Let go of all that a node without children holds."""
        self._leaves.discard(node)
        for group, block in enumerate(node.blocks):
            if block != NO_BLOCK:
                self._drop_block(node, group)
        if node.state != NO_SLOT:
            self._drop_state(node)
        if node.parent is None:
            self.roots.pop(node.digest, None)
        else:
            node.parent.children.pop(node.digest, None)
            node.parent = None

    def _drop_block(self, node: Node, group: int) -> None:
        self._windowed[group].discard(node)
        self.pools[group].drop(node.blocks[group])
        node.blocks[group] = NO_BLOCK

    def _drop_state(self, node: Node) -> None:
        self._states.discard(node)
        self._free_slots.append(node.state)
        node.state = NO_SLOT

    def _evicted_slot(self) -> int:
        node = self._states.pop()
        self._drop_state(node)
        self.settle(node)
        return self._free_slots.pop()
