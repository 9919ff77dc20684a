"""Random schedules of the whole engine in virtual time, and what must hold of each, whatever happens in it."""

import random
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.api.request import FinishEvent, FinishReason, Request
from engine.errors import EngineFaultError
from engine.run.nodes import root_digest
from engine.run.runner_protocol import SequenceRows
from engine.run.sequence import TokenSequence
from engine.scheduling.admission import AGEING, rank_of
from tests.engine.scheduling.loop_bench import Bench, Heard
from tests.engine.scheduling.speculation.forced import any_pattern, force
from tests.engine.scripted import END_ID, VOCAB_SIZE, ScriptedRunner, a_request

MOST_STEPS = 20_000
PRIORITIES = (-1, 0, 0, 0, 2)


@cache
def next_token(known: tuple[int, ...]) -> int:
    """What the model says after these tokens; the end of a turn is rare."""
    return (
        zlib.crc32(array("b", known).tobytes()) % (4 * VOCAB_SIZE) % VOCAB_SIZE
        if len(known) % 5
        else 1 + len(known) % 9
    )


def one_hot_logits(known: tuple[int, ...]) -> NDArray[np.float32]:
    logits = np.zeros(VOCAB_SIZE, np.float32)
    logits[next_token(known)] = 1
    return logits


def answer_alone(prompt: tuple[int, ...], limit: int) -> list[int]:
    """What a greedy request is answered that has the engine to itself."""
    known = list(prompt)
    while len(known) - len(prompt) < limit:
        known.append(next_token(tuple(known)))
        if known[-1] == END_ID:
            break
    return known[len(prompt) :]


class Fault(Exception):
    """One that the simulation injects."""


@dataclass
class Outcome:
    """What happened in a schedule, so that a campaign can tell that it covered what it should."""

    requests: int = 0
    steps: int = 0
    preemptions: int = 0
    faults: int = 0
    aborts: int = 0
    overdue: int = 0
    hits: int = 0  # requests that found tokens in the cache
    drafted: int = 0  # tokens that were guessed
    accepted: int = 0
    most_overtaken: int = 0

    def __add__(self, other: "Outcome") -> "Outcome":
        total = Outcome(*map(sum, zip(astuple(self), astuple(other), strict=True)))
        total.most_overtaken = max(self.most_overtaken, other.most_overtaken)
        return total


class Schedule:
    """One random schedule. Every choice follows from the seed."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self._now = 0.0
        lanes = rng.randint(1, 5)
        windows = rng.choice([(0,), (0,), (0, 8), (5, 0, 12)])
        self._states = rng.choice([0, 0, lanes, lanes + 3])
        self.runner = ScriptedRunner(
            n_blocks=rng.randint(16, 40),
            block_tokens=4,
            max_rows=rng.randint(lanes, 48),
            max_logit_rows=rng.randint(lanes, 16),
            windows=windows,
            state_slots=self._states,
        )
        self.runner.logits_of = one_hot_logits
        self.runner.before_run = self._before_run
        self._max_waiting = 40
        self._speculation = random.Random(~seed)  # of its own, so that the schedule is the one it was without
        self._caching = random.Random(seed ^ (1 << 40))  # likewise
        speculation = self._speculation.choice(["off", "auto", "forced", "forced"])
        config = EngineConfig(
            lanes=lanes,
            max_waiting=self._max_waiting,
            prefill_rows=rng.choice([3, 16, 48]),
            knee_rows=rng.choice([1, 4, 16]),
            prefill_interval=rng.randint(1, 4),
            itl_target_ms=rng.choice([None, 1e-6, 10]),
            speculation="off" if speculation == "off" else "auto",
            draft_max=self._speculation.randint(1, 9),
            priorities_across_callers=self._caching.random() < 0.3,
        )
        self._lanes = lanes
        self.bench = Bench(self.runner, config, lambda: self._now)
        self._answers: dict[tuple[str, int], list[int]] = {}
        if speculation == "forced":
            force(self.bench, self._answers, any_pattern(seed))
        self._fault_rate = rng.choice([0.0, 0.0, 0.02])
        self._abort_rate = rng.choice([0.0, 0.03])
        self._prefixes = [self._tokens(rng.randint(4, 24)) for _ in range(3)]
        self._callers = [b"a", b"b", b"c"][: rng.randint(1, 3)]
        self._todo = [self._random_requests(number) for number in range(rng.randint(3, 14))]
        self._heard: list[Heard] = []
        self._poisoned: set[TokenSequence] = set()
        self._aborted: set[TokenSequence] = set()
        self._overtaken: dict[TokenSequence, int] = {}  # those that wait for their first lane, in order of arrival
        self._idle_steps = 0  # in a row in which the most urgent did not get on
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Drive it to its end; raises AssertionError at the first thing that should not be."""
        scheduler = self.bench.scheduler
        while self._todo or scheduler.has_work or not self.bench.loop._inbox.empty():
            if self._todo and (self._rng.random() < 0.4 or not scheduler.has_work):
                self._submit(self._todo.pop())
            if self._heard and self._rng.random() < self._abort_rate:
                victim = self._rng.choice(self._heard).job.sequence
                self.bench.loop.abort(victim)
                self._aborted.add(victim)
            self._step()
            self.outcome.steps += 1
            assert self.outcome.steps < MOST_STEPS, "the engine makes no progress"
        self.bench.finish()
        roots = set(self.bench.memory._cache.roots)
        for heard in self._heard:
            self._check_end(heard)
            request = heard.job.sequence.request
            assert request.caches_prompt or root_digest(request.caller, request.cache_salt) not in roots
        self.outcome.requests = len(self._heard)
        return self.outcome

    def _step(self) -> None:
        before = self._most_urgent()
        self._now += 1e-4
        late = [s for s in self.bench.scheduler.waiting if s.deadline is not None and s.deadline <= self._now]
        self.bench.step()
        assert not any(sequence in self.bench.scheduler.waiting for sequence in late), "one waits beyond its deadline"
        self._check_memory()
        self._note_starts()
        self._idle_steps = self._idle_steps + 1 if before == self._most_urgent() != (None, 0) else 0
        # After a fault, others may be computed again alone before it is its turn.
        each = 20 if self._fault_rate else 0
        assert self._idle_steps <= 4 + each * len(self.bench.loop._jobs), "the most urgent makes no progress"

    def _most_urgent(self) -> tuple[TokenSequence | None, int]:
        running = self.bench.scheduler.running
        return (running[0], running[0].computed) if running else (None, 0)

    def _check_memory(self) -> None:
        """Blocks in use are those that running sequences refer to, and nothing that waits has any."""
        memory, scheduler = self.bench.memory, self.bench.scheduler
        assert len(scheduler.running) <= self._lanes
        assert all(not sequence.held.tables for sequence in scheduler.waiting)
        assert scheduler.running == sorted(scheduler.running, key=rank_of)
        held = {
            (group, block)
            for sequence in scheduler.running
            for group, table in enumerate(sequence.held.tables)
            for block in table
            if block >= 0
        }
        assert len(held) == memory.blocks - memory.free_blocks
        slots = [sequence.held.state_slot for sequence in scheduler.running]
        assert len(set(slots)) == len(slots)

    def _note_starts(self) -> None:
        """Count who was overtaken. Answers to one prompt wait for each other, so they are left out."""
        running = [s for s in self.bench.scheduler.running if s in self._overtaken]
        for sequence in sorted(running, key=rank_of):
            for earlier in self._overtaken:
                if earlier is sequence:
                    break
                self._overtaken[earlier] += 1
                self.outcome.most_overtaken = max(self.outcome.most_overtaken, self._overtaken[earlier])
            del self._overtaken[sequence]
        for sequence in [s for s in self._overtaken if s not in self.bench.scheduler.waiting]:
            del self._overtaken[sequence]
        width = max(PRIORITIES) - min(PRIORITIES)
        bound = AGEING * width + (self._lanes + self._max_waiting) * self._lanes
        assert self.outcome.most_overtaken <= bound, "a request starves"

    # What comes in

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.randrange(1, 4) for _ in range(count))

    def _random_requests(self, number: int) -> list[Request]:
        rng = self._rng
        prompt = rng.choice([(), *self._prefixes]) + self._tokens(rng.randint(1, 20))
        seconds = rng.choice([None, None, None, rng.uniform(0, 0.2)])
        shared: dict[str, Any] = {
            "priority": rng.choice(PRIORITIES),
            "caller": rng.choice(self._callers),
            "max_seconds": seconds,
        }
        scored = rng.random() < 0.1
        predicted = self._speculation.random() < 0.3
        if self._caching.random() < 0.15:
            shared |= {"cache_salt": f"@{number}", "caches_prompt": False}
        return [
            a_request(
                prompt,
                max_tokens=rng.choice([1, 3, 12, 20]),
                name=f"r{number}",
                choice=choice,
                prompt_logprobs=0 if scored else None,
                explains_cache=rng.random() < 0.3,
                prediction=tuple(answer_alone(prompt, 20)[2:]) if predicted else (),
                **shared,
            )
            for choice in range(rng.choice([1, 1, 1, 2, 4]))
        ]

    def _submit(self, requests: list[Request]) -> None:
        for request in requests:
            self._answers[request.id, request.choice] = answer_alone(request.prompt.tokens, request.max_tokens or 0)
            heard = self.bench.submit(request)
            self._heard.append(heard)
            if len(requests) == 1:
                self._overtaken[heard.job.sequence] = 0
            if self._rng.random() < self._fault_rate * 3:
                self._poisoned.add(heard.job.sequence)

    def _before_run(self, batch: Sequence[SequenceRows]) -> None:
        """Time passes with the rows. A poisoned sequence breaks every run that it is in, others only some."""
        self._now += 1e-3 + 1e-4 * sum(len(rows.tokens) for rows in batch)
        if self._rng.random() < self._fault_rate and len(batch) > 1:
            self.outcome.faults += 1
            raise Fault("a step that breaks once")
        running = {id(sequence.held.tables): sequence for sequence in self.bench.scheduler.running}
        for rows in batch:
            sequence = running[id(rows.block_tables)]
            if sequence in self._poisoned and sequence.computed + len(rows.tokens) > sequence.prompt_tokens // 2:
                raise Fault("a sequence that breaks the runner")

    # What came out

    def _check_end(self, heard: Heard) -> None:
        sequence, last = heard.job.sequence, heard.last
        request, said = sequence.request, [token.id for token in heard.tokens]
        expected = answer_alone(request.prompt.tokens, sequence.max_new_tokens)
        assert said == expected[: len(said)], "another answer than alone"
        if isinstance(last, EngineFaultError):
            assert sequence in self._poisoned, "a fault ended a request that had none"
            self.outcome.faults += 1
            return
        assert isinstance(last, FinishEvent)
        self.outcome.preemptions += last.preemptions
        self.outcome.drafted += last.timings.drafted_tokens
        self.outcome.accepted += last.timings.accepted_tokens
        assert last.accepted_prediction_tokens + last.rejected_prediction_tokens == len(request.prediction)
        self.outcome.hits += last.cached_tokens > 0
        if last.reason is FinishReason.ABORT:
            assert sequence in self._aborted
            self.outcome.aborts += 1
        elif last.stop == "deadline":
            assert request.max_seconds is not None
            self.outcome.overdue += 1
        else:
            assert said == expected
            assert request.prompt_logprobs is None or len(last.prompt_logprobs) == len(request.prompt)
