"""What the scheduler plans, whom it admits, who has to give way, and that nothing it held is lost."""

import pytest

from engine.api.config import EngineConfig
from engine.memory.memory import Memory
from engine.run.sequence import TokenSequence
from engine.run.step import StepPlan, planned_rows, step_plan
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.scheduler import Scheduler
from tests.engine.scripted import ScriptedRunner, a_request

BLOCK_TOKENS = 4


class Bench:
    """A scheduler whose steps are computed by nobody: each sequence that is due gets a token."""

    def __init__(self, *, n_blocks: int = 100, max_rows: int = 32, max_logit_rows: int = 32, **config: int) -> None:
        runner = ScriptedRunner(
            n_blocks=n_blocks, block_tokens=BLOCK_TOKENS, max_rows=max_rows, max_logit_rows=max_logit_rows
        )
        settings = EngineConfig(**{"lanes": 4, "prefill_rows": 16, "knee_rows": 5} | config)  # type: ignore[arg-type]
        self.memory = Memory(runner, settings.lanes)
        self.scheduler = Scheduler(settings, self.memory, runner)
        self._prompts = 0

    def add(
        self, prompt_tokens: int, max_new_tokens: int = 4, *, is_fresh: bool = True, **request: object
    ) -> TokenSequence:
        """Queue a request, which has nothing in common with those before it if it is fresh."""
        self._prompts += is_fresh
        prompt = (self._prompts, *[1] * (prompt_tokens - 1))
        sequence = TokenSequence(a := a_request(prompt, **request), max_new_tokens, TokenChooser(a))  # type: ignore[arg-type]
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> StepPlan:
        plan = self.scheduler.schedule()
        due = [rows.sequence for rows in plan.rows if rows.rows.logit_rows]
        for rows in plan.rows:
            self.scheduler.advance(rows)
        for sequence in due:
            sequence.tokens.append(1)
        return plan

    def run(self, steps: int) -> list[list[int]]:
        return [counts(self.step()) for _ in range(steps)]


def counts(plan: StepPlan) -> list[int]:
    return [rows.known_rows for rows in plan.rows]


def test_a_prompt_is_cut_into_chunks_and_only_the_last_wants_logits() -> None:
    bench = Bench()
    bench.add(35)
    chunks = []
    for _ in range(3):
        plan = bench.scheduler.schedule()
        chunks += [(rows.known_rows, rows.rows.logit_rows) for rows in plan.rows]
        bench.scheduler.advance(plan.rows[0])
    assert chunks == [(16, 0), (16, 0), (3, 1)]


def test_decode_rows_come_first_and_the_rest_up_to_the_knee_is_a_prompt_s() -> None:
    bench = Bench()
    old = bench.add(5)
    bench.step()
    new = bench.add(30)
    plan = bench.step()
    assert [rows.sequence for rows in plan.rows] == [old, new]
    assert counts(plan) == [1, 4]
    assert (plan.total_rows, plan.decode_rows, plan.single_rows) == (5, 1, 1)


def test_a_plan_keeps_its_figures_when_its_sequences_go_on() -> None:
    bench = Bench()
    bench.add(20)
    plans = [bench.step() for _ in range(3)]
    assert [(plan.total_rows, plan.decode_rows, plan.single_rows) for plan in plans] == [
        (16, 0, 0),
        (4, 0, 0),
        (1, 1, 1),
    ]
    assert [[(chunk.position, chunk.rows) for chunk in plan.chunks] for plan in plans] == [[(0, 16)], [(16, 4)], []]


def test_drafts_are_rows_of_their_sequence_and_each_is_judged() -> None:
    bench = Bench()
    sequence = bench.add(3)
    bench.step()
    planned = planned_rows(sequence, 1, drafts=(7, 8))
    assert planned.rows.tokens == [1, 7, 8] and planned.rows.position == 3
    assert (planned.known_rows, planned.rows.logit_rows, planned.is_decode) == (1, 3, True)
    plan = step_plan([planned])
    assert (plan.total_rows, plan.decode_rows, plan.draft_rows, plan.chunks) == (3, 1, 2, ())


def test_the_oldest_prompt_gets_rows_first_and_the_rest_goes_to_the_next() -> None:
    bench = Bench()
    for _ in range(3):
        bench.add(10)
    assert counts(bench.step()) == [10, 6]


def test_a_step_never_has_more_rows_than_the_runner_takes() -> None:
    bench = Bench(max_rows=4, prefill_rows=100, knee_rows=100)
    for prompt_tokens in (1, 1, 1, 9):
        bench.add(prompt_tokens, max_new_tokens=20)
    assert bench.run(9) == [[1, 1, 1, 1]] * 9
    with pytest.raises(ValueError, match="lanes must be at most the 2 rows of a step, not 4"):
        Bench(max_rows=2)


def test_lanes_bound_how_many_run_and_the_first_come_is_first_served() -> None:
    bench = Bench(lanes=2)
    sequences = [bench.add(3) for _ in range(4)]
    bench.step()
    assert bench.scheduler.running == sequences[:2]
    bench.scheduler.remove(sequences[0])
    bench.step()
    assert bench.scheduler.running == sequences[1:3]


def test_a_request_without_room_for_its_next_rows_waits_and_is_not_overtaken() -> None:
    bench = Bench(n_blocks=4)
    small, large, late = bench.add(5, 4), bench.add(13, 4), bench.add(1, 1)
    bench.step()
    assert bench.scheduler.running == [small]
    bench.scheduler.remove(small)
    bench.step()
    assert bench.scheduler.running == [large]
    assert list(bench.scheduler.waiting) == [late]


def test_blocks_are_taken_as_a_sequence_grows_and_the_last_token_needs_none() -> None:
    bench = Bench()
    bench.add(BLOCK_TOKENS, 2)
    bench.step()
    assert bench.memory.blocks - bench.memory.free_blocks == 1
    bench.step()
    assert bench.memory.blocks - bench.memory.free_blocks == 2


def test_the_least_urgent_gives_way_waits_in_its_old_place_and_keeps_its_tokens() -> None:
    bench = Bench(n_blocks=6, lanes=3, knee_rows=100)
    first, second, third = bench.add(4, 12), bench.add(4, 12), bench.add(4, 12)
    late = bench.add(4, 12)
    plans = []
    while not third.standing.preemptions:
        plans.append(bench.step())
    tokens = list(third.tokens)
    assert bench.scheduler.running == [first, second] and list(bench.scheduler.waiting) == [third, late]
    assert third.computed == 0 and third.new_tokens > 0 and plans[-1].preempted == 1
    assert third not in [rows.sequence for rows in plans[-1].rows]
    bench.scheduler.remove(first)
    bench.scheduler.remove(second)
    plan = bench.step()
    assert plan.rows[0].sequence is third and third.tokens[: len(tokens)] == tokens
    assert plan.decode_rows == 0  # it is a prompt again


def test_the_most_urgent_never_gives_way_and_all_end_in_a_pool_for_one() -> None:
    bench = Bench(n_blocks=4)
    sequences = [bench.add(5, 11) for _ in range(5)]
    for oldest in list(sequences):
        before = oldest.standing.preemptions
        while oldest.new_tokens < 11:
            plan = bench.step()
            assert oldest in [rows.sequence for rows in plan.rows] and oldest.standing.preemptions == before
        bench.scheduler.remove(oldest)
    assert sum(sequence.standing.preemptions for sequence in sequences) > 0 and not bench.scheduler.has_work
    assert bench.memory.free_blocks == bench.memory.blocks


def test_a_prompt_takes_only_blocks_that_are_free_rather_than_another_s() -> None:
    bench = Bench(n_blocks=6, knee_rows=100)
    old = bench.add(7, 8)
    bench.step()
    new = bench.add(14, 2, priority=0)
    plan = bench.step()
    assert plan.preempted == 0 and old in bench.scheduler.running
    assert new.computed <= 3 * BLOCK_TOKENS


def test_answers_to_one_prompt_wait_for_the_first_to_compute_it() -> None:
    bench = Bench(lanes=3)
    siblings = [bench.add(30, choice=choice, is_fresh=choice == 0) for choice in range(3)]
    other = bench.add(2)
    assert bench.run(2) == [[16], [14, 2]]
    assert bench.scheduler.running == [siblings[0], other]
    plan = bench.step()
    assert [rows.sequence for rows in plan.rows[:2]] == [siblings[0], other]
    assert bench.scheduler.running == [siblings[0], siblings[1], other]
    assert siblings[1].held.cached_tokens == 28
    bench.scheduler.remove(other)
    bench.step()
    assert siblings[2].held.cached_tokens == 28


def test_removal_at_any_stage_frees_everything_and_twice_is_harmless() -> None:
    bench = Bench(lanes=1)
    running, waiting = bench.add(40), bench.add(3)
    bench.step()
    for sequence in (waiting, running, waiting, running):
        bench.scheduler.remove(sequence)
    assert bench.memory.free_blocks == bench.memory.blocks
    assert not bench.scheduler.has_work


@pytest.mark.parametrize("method", ["attach", "catch_up", "chunk_end", "grow"])
def test_a_fault_of_the_memory_drops_one_sequence_and_is_told(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sequences = [bench.add(6) for _ in range(3)]
    real = getattr(bench.memory, method)

    def failing(sequence: TokenSequence, *others: object) -> object:
        if sequence is sequences[1]:
            raise MemoryError("no room")
        return real(sequence, *others)

    monkeypatch.setattr(bench.memory, method, failing)
    plans = [bench.step(), bench.step()]
    ((sequence, error),) = [fault for plan in plans for fault in plan.faults]
    assert sequence is sequences[1] and isinstance(error, MemoryError)
    assert bench.scheduler.running == [sequences[0], sequences[2]] and all(
        s.new_tokens for s in bench.scheduler.running
    )


def test_after_a_fault_each_is_computed_alone_until_it_is_past_it() -> None:
    bench = Bench(knee_rows=100)
    first, second = bench.add(6), bench.add(6)
    bench.scheduler.isolate(bench.scheduler.schedule())
    plans = [bench.step() for _ in range(3)]
    assert [[rows.sequence for rows in plan.rows] for plan in plans] == [[first], [first], [second]]
    assert [rows.sequence for rows in bench.step().rows] == [first, second]
