"""Speculation that is told what to guess, and a bench that keeps the bits of all logits that tokens were drawn from."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import pytest

from engine.api.config import EngineConfig
from engine.api.request import Event, Request
from engine.errors import OctavoError
from engine.run.runner_protocol import ModelRunner
from engine.run.sequence import TokenSequence
from engine.scheduling.speculation.draft_budget import Account, Worth
from engine.scheduling.speculation.speculation import Speculation
from tests.engine.run.logit_keeper import LogitKeeper
from tests.engine.scheduling.loop_bench import Bench, Heard, essence
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner

MOST = 7
Pattern = Callable[[int], str]  # step -> what to guess: r(ight) and w(rong) for each draft
Answers = Mapping[tuple[str, int], list[int]]  # by name and choice


class ForcedSpeculation(Speculation):
    """Knows each answer beforehand, and guesses right or wrong as the pattern says."""

    def force(self, answers: Answers, pattern: Pattern) -> None:
        self.answers, self.pattern, self.step = answers, pattern, 0

    def drafts(self, rooms: Mapping[TokenSequence, int], most: int, lanes: int) -> dict[TokenSequence, tuple[int, ...]]:
        self.step += 1
        drafts = {}
        for number, (sequence, room) in enumerate(rooms.items()):
            coming = self.answers[sequence.request.id, sequence.request.choice][sequence.new_tokens :]
            coming += [1] * MOST  # behind the end of the answer, where no draft is right
            marks = self.pattern(self.step + number)[: min(room, MOST, most)]
            most -= len(marks)
            if marks:
                drafts[sequence] = tuple(
                    token if mark == "r" else (token + 1) % VOCAB_SIZE
                    for mark, token in zip(marks, coming, strict=False)
                )
        return drafts


def try_all_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all drafts that are made tried: a model of random weights would not earn them."""
    monkeypatch.setattr(Account, "rows_at", lambda self, prices: len(prices))
    monkeypatch.setattr(Worth, "rows", lambda self, chances, lanes, prices: min(len(chances), len(prices)))
    monkeypatch.setattr(
        Worth, "model_rows", lambda self, chances, lanes, prices: min(len(chances), len(prices), 3 * lanes)
    )


def force(bench: Bench, answers: Answers, pattern: Pattern) -> None:
    """Have a bench guess as the pattern says; answers may be added later."""
    scheduler = bench.scheduler
    speculation = ForcedSpeculation(scheduler._config, scheduler.pace, None, scheduler._block_tokens)
    speculation.force(answers, pattern)
    scheduler.speculation = speculation


def always(marks: str) -> Pattern:
    return lambda step: marks


def any_pattern(seed: int) -> Pattern:
    def pattern(step: int) -> str:
        rng = random.Random(seed * 10_007 + step)
        return "".join(rng.choices("rrrw", k=rng.randint(0, MOST)))

    return pattern


@dataclass
class Served:
    """What the requests of a bench heard, in order."""

    logits: list[list[bytes]]
    items: list[list[object]]
    heard: list[Heard]
    bench: Bench

    @property
    def answers(self) -> dict[tuple[str, int], list[int]]:
        sequences = [heard.job.sequence for heard in self.heard]
        return {(s.request.id, s.request.choice): s.tokens[s.prompt_tokens :] for s in sequences}

    @property
    def drafted(self) -> int:
        return sum(heard.job.sequence.course.drafted for heard in self.heard)

    @property
    def accepted(self) -> int:
        return sum(heard.job.sequence.course.accepted for heard in self.heard)


def served(
    runner: ModelRunner,
    requests: list[Request],
    config: EngineConfig,
    forced: tuple[Answers, Pattern] | None = None,
) -> Served:
    """Serve all requests at once."""
    keeper = LogitKeeper(runner.vocab_size)
    bench = Bench(cast(ScriptedRunner, runner), config, sampler=keeper)
    if forced is not None:
        force(bench, *forced)
    heard = [bench.submit(request) for request in requests]
    bench.finish()
    items: list[list[Event | OctavoError]] = [one.items for one in heard]
    logits = [keeper.seen[one.job.sequence.chooser] for one in heard]
    return Served(logits, list(map(essence, items)), heard, bench)
