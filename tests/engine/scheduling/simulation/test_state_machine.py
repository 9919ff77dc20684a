"""The loop as a state machine: hypothesis looks for the shortest story that ends badly."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from engine.api.config import EngineConfig
from engine.api.request import FinishEvent, FinishReason
from engine.errors import EngineFaultError
from tests.engine.scheduling.loop_bench import Bench, Heard
from tests.engine.scheduling.simulation.schedules import Fault, answer_alone, one_hot_logits
from tests.engine.scheduling.speculation.forced import force
from tests.engine.scripted import ScriptedRunner, a_request

TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=30).map(tuple)


class LoopMachine(RuleBasedStateMachine):
    """Requests come, are left, run out of time and fail; time moves only where a rule says so."""

    open = Bundle("open")

    @initialize(
        lanes=st.integers(1, 3),
        n_blocks=st.integers(14, 20),
        windows=st.sampled_from([(0,), (0, 8)]),
        states=st.sampled_from([0, 3, 5]),
        prefill_rows=st.sampled_from([1, 5, 16]),
        drafts=st.lists(st.sampled_from(["", "r", "w", "rrrr", "rw", "rrrwr"]), min_size=1, max_size=4),
    )
    def begin(
        self,
        lanes: int,
        n_blocks: int,
        windows: tuple[int, ...],
        states: int,
        prefill_rows: int,
        drafts: list[str],
    ) -> None:
        self.now = 0.0
        self.heard: list[Heard] = []
        self.left: list[Heard] = []
        self.faulty = False
        runner = ScriptedRunner(n_blocks=n_blocks, max_rows=16, windows=windows, state_slots=states)
        runner.logits_of = one_hot_logits
        runner.before_run = self.maybe_fail
        self.bench = Bench(runner, EngineConfig(lanes=lanes, prefill_rows=prefill_rows), lambda: self.now)
        self.answers: dict[tuple[str, int], list[int]] = {}
        force(self.bench, self.answers, lambda step: drafts[step % len(drafts)])

    def maybe_fail(self, batch: object) -> None:
        if self.faulty:
            self.faulty = False
            raise Fault("a step that breaks once")

    @rule(
        target=open,
        prompt=TOKENS,
        max_tokens=st.integers(1, 24),
        priority=st.integers(-1, 1),
        caller=st.sampled_from([b"a", b"b"]),
        seconds=st.sampled_from([None, None, 2.0]),
        name=st.sampled_from(["r", "s"]),
    )
    def submit(self, prompt: tuple[int, ...], max_tokens: int, seconds: float | None, **others: Any) -> Heard:
        name = others.pop("name")
        self.answers[name, len(self.heard)] = answer_alone(prompt, max_tokens)
        request = a_request(
            prompt, max_tokens=max_tokens, max_seconds=seconds, name=name, choice=len(self.heard), **others
        )
        heard = self.bench.submit(request)
        self.heard.append(heard)
        return heard

    @rule(heard=consumes(open))
    def leave(self, heard: Heard) -> None:
        self.bench.loop.abort(heard.job.sequence)
        self.left.append(heard)

    @rule(seconds=st.sampled_from([0.01, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(steps=st.integers(1, 6), is_faulty=st.sampled_from([False, False, False, True]))
    def step(self, steps: int, is_faulty: bool) -> None:
        self.faulty = is_faulty
        for _ in range(steps):
            if self.bench.scheduler.has_work or not self.bench.loop._inbox.empty():
                self.bench.step()

    @invariant()
    def nothing_leaks(self) -> None:
        if not hasattr(self, "bench"):
            return
        running = self.bench.scheduler.running
        held = {
            (group, block)
            for sequence in running
            for group, table in enumerate(sequence.held.tables)
            for block in table
            if block >= 0
        }
        assert len(held) == self.bench.memory.blocks - self.bench.memory.free_blocks
        assert {id(s) for s in running} | {id(s) for s in self.bench.scheduler.waiting} == set(
            map(id, self.bench.loop._jobs)
        )

    def teardown(self) -> None:
        """Whatever happened, all ends, and each said what it says alone."""
        if not hasattr(self, "bench"):
            return
        self.faulty = False
        self.bench.finish()
        for heard in self.heard:
            sequence, last = heard.job.sequence, heard.last
            said = [token.id for token in heard.tokens]
            expected = answer_alone(sequence.request.prompt.tokens, sequence.max_new_tokens)
            assert said == expected[: len(said)]
            if isinstance(last, EngineFaultError):  # it was alone in the step that broke
                continue
            assert isinstance(last, FinishEvent)
            if last.reason is FinishReason.ABORT:
                assert heard in self.left
            else:
                assert said == expected or last.stop == "deadline"


TestLoopMachine = LoopMachine.TestCase
TestLoopMachine.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
