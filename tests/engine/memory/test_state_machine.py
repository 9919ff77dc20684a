"""Random sequences over tiny pools: nothing leaks, nothing is shared that is written, and no hit is wrong."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.run.nodes import NO_SLOT, root_digest
from engine.run.runner_protocol import NO_BLOCK
from engine.run.sequence import TokenSequence
from tests.engine.memory.bench import BLOCK_TOKENS, MemoryBench, prefix_of

WINDOWS = ((0,), (0, 6), (0, 1, 9), (0, 0), (7,))
Key = tuple[bytes, str]


class Machine(RuleBasedStateMachine):
    """The model: the texts that each caller and salt has had computed, and the sequences that were preempted."""

    bench: MemoryBench

    @initialize(
        windows=st.sampled_from(WINDOWS), n_blocks=st.integers(8, 14), snapshots=st.sampled_from([None, 0, 1, 4])
    )
    def begin(self, windows: tuple[int, ...], n_blocks: int, snapshots: int | None) -> None:
        slots = 0 if snapshots is None else 3 + snapshots
        if windows == (7,):  # without a group that sees all, only a state tells the scripted runner the whole text
            slots = slots or 4
        self.bench = MemoryBench(lanes=3, windows=windows, n_blocks=n_blocks, state_slots=slots)
        self.texts: list[list[int]] = []
        self.computed: set[tuple[Key, tuple[int, ...]]] = set()
        self.preempted: list[TokenSequence] = []

    def key(self, sequence: TokenSequence) -> Key:
        return sequence.request.caller, sequence.request.cache_salt

    def choose(self, data: st.DataObject) -> TokenSequence:
        return data.draw(st.sampled_from(self.bench.running))

    @precondition(lambda self: len(self.bench.running) < 3)
    @rule(data=st.data(), caller=st.sampled_from([b"", b"a"]), salt=st.sampled_from(["", "s"]), scored=st.booleans())
    def start(self, data: st.DataObject, caller: bytes, salt: str, scored: bool) -> None:
        known = data.draw(st.sampled_from(self.texts)) if self.texts else []
        prompt = known[: data.draw(st.integers(0, len(known)))] + data.draw(st.lists(st.integers(1, 2), max_size=9))
        prompt = prompt[:24] or [1]
        others: dict[str, Any] = {"prompt_logprobs": 0} if scored and data.draw(st.booleans()) else {}
        before = self.bench.memory.hit_tokens
        expected = 0 if others else self.expected((caller, salt), prompt)
        sequence = self.bench.start(tuple(prompt), caller=caller, cache_salt=salt, explains_cache=True, **others)
        self.texts = [*self.texts[-9:], sequence.tokens]
        assert sequence.computed == sequence.held.cached_tokens == expected
        assert self.bench.memory.hit_tokens - before == expected
        assert expected == 0 or (self.key(sequence), tuple(prompt[:expected])) in self.computed
        assert sequence.held.cache_report is not None and sequence.held.cache_report.matched_tokens >= expected

    def expected(self, key: Key, tokens: list[int]) -> int:
        """The longest usable prefix, found by trying all that the tree holds."""
        root = self.bench.memory._cache.roots.get(root_digest(*key))
        prefixes = {}
        for node in self.bench.nodes():
            top = node
            while top.parent is not None:
                top = top.parent
            if top is root:
                prefixes[prefix_of(node)] = node
        best = 0
        for end in range(BLOCK_TOKENS, len(tokens), BLOCK_TOKENS):
            chain = [prefixes.get(tuple(tokens[:part])) for part in range(BLOCK_TOKENS, end + 1, BLOCK_TOKENS)]
            if None in chain:
                break
            seen = [
                node.blocks[group] != NO_BLOCK
                for group, each in enumerate(self.bench.runner.groups)
                for index, node in enumerate(chain)
                if node is not None and not (each.window and (index + 1) * BLOCK_TOKENS - 1 < end - each.window + 1)
            ]
            last = chain[-1]
            if all(seen) and last is not None and (not self.bench.runner.state_slots or last.state != NO_SLOT):
                best = end
        return best

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data(), rows=st.integers(1, 20))
    def step(self, data: st.DataObject, rows: int) -> None:
        sequence = self.choose(data)
        if len(sequence.tokens) > 30 or not self.bench.memory.fits(len(sequence.tokens)):
            self.bench.end(sequence)
            return
        can = self.bench.memory.reach(sequence) - sequence.computed
        assert can > 0 or len(self.bench.running) > 1, "alone, a sequence that fits can always go on"
        if not self.bench.step(sequence, max(1, min(rows, can))):
            self.preempt_one(sequence)
            return
        for end in range(BLOCK_TOKENS, sequence.computed + 1, BLOCK_TOKENS):
            self.computed.add((self.key(sequence), tuple(sequence.tokens[:end])))

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.preempt_one(self.choose(data))

    def preempt_one(self, sequence: TokenSequence) -> None:
        self.bench.end(sequence)
        sequence.standing.preemptions += 1
        self.preempted.append(sequence)

    @precondition(lambda self: self.preempted and len(self.bench.running) < 3)
    @rule()
    def resume(self) -> None:
        sequence = self.preempted.pop(0)
        cached = sequence.held.cached_tokens
        expected = 0 if sequence.needs_whole_prompt else self.expected(self.key(sequence), sequence.tokens)
        self.bench.resume(sequence)
        assert (sequence.computed, sequence.held.cached_tokens) == (expected, cached)

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        sequence = self.choose(data)
        before = sequence.computed
        if sequence.pending > 1:
            assert self.bench.memory.catch_up(sequence) == sequence.computed - before
            assert sequence.computed == before or sequence.computed % BLOCK_TOKENS == 0
        assert sequence.pending > 0

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.bench.end(self.choose(data))

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def fault(self, data: st.DataObject) -> None:
        self.bench.fault(self.choose(data))

    @precondition(lambda self: self.bench.running and self.bench.runner.state_slots)
    @rule(data=st.data(), rows=st.integers(1, 20))
    def fault_in_copying(self, data: st.DataObject, rows: int) -> None:
        sequence, copy_state = self.choose(data), self.bench.runner.copy_state

        def broken(source: int, target: int) -> None:
            raise MemoryError

        self.bench.runner.copy_state = broken  # type: ignore[method-assign]
        try:
            self.bench.step(sequence, rows)
        except MemoryError:
            self.bench.fault(sequence)
        finally:
            self.bench.runner.copy_state = copy_state  # type: ignore[method-assign]

    @invariant()
    def all_is_accounted_for(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        for sequence in list(self.bench.running):
            self.bench.end(sequence)
        self.bench.check()
        assert self.bench.memory.free_blocks == self.bench.memory.blocks


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
