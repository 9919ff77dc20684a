"""A loop with a scripted runner, driven step by step without its thread, and all that it published."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.api.config import EngineConfig
from engine.api.request import Event, FinishEvent, Request, TextEvent, Timings, Token
from engine.errors import EngineFaultError, OctavoError
from engine.memory.memory import Memory
from engine.run.event_stream import EventStream
from engine.run.outputs import RequestOutput
from engine.run.sequence import TokenSequence
from engine.run.status import StepReport
from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.loop import Delivery, EngineLoop, Job
from engine.scheduling.scheduler import Scheduler
from tests.engine.scripted import END_ID, VOCAB_SIZE, ScriptedRunner, letter_tokenizer


@dataclass
class Heard:
    """What one request's stream was sent."""

    job: Job
    items: list[Event | OctavoError] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextEvent))

    @property
    def tokens(self) -> list[Token]:
        return [token for item in self.items if isinstance(item, TextEvent) for token in item.tokens]

    @property
    def last(self) -> Event | OctavoError:
        return self.items[-1]


class Bench:
    """A loop with a scripted runner, and all that it published."""

    def __init__(
        self,
        runner: ScriptedRunner | None = None,
        config: EngineConfig | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sampler: Sampler | None = None,
    ) -> None:
        """Without a config there is no speculation: what it tries follows from the time that steps take."""
        config = config or EngineConfig(speculation="off")
        self.runner = runner or ScriptedRunner()
        self.memory = Memory(self.runner, config.lanes)
        self.scheduler = Scheduler(config, self.memory, self.runner)
        self.loop = EngineLoop(self.runner, self.scheduler, sampler or Sampler(VOCAB_SIZE), self._publish, clock)
        self.heard: dict[EventStream, Heard] = {}
        self.publications = 0
        self.reports: list[StepReport] = []

    def submit(self, request: Request) -> Heard:
        limit = 8 if request.max_tokens is None else request.max_tokens
        sequence = TokenSequence(request, limit, TokenChooser(request, frozenset({END_ID})))
        output = RequestOutput(request, letter_tokenizer(), sequence.max_new_tokens)
        heard = Heard(Job(sequence, output, EventStream(lambda: self.loop.abort(sequence))))
        self.heard[heard.job.stream] = heard
        self.loop.submit(heard.job)
        return heard

    def step(self) -> None:
        """Obey waiting commands and run one step, as the thread does; what the next would publish is heard now."""
        self.loop._take_commands()
        self.loop.step()
        self.loop._publish()

    def finish(self) -> None:
        while self.scheduler.has_work or not self.loop._inbox.empty():
            self.step()
        assert self.memory.free_blocks == self.memory.blocks
        assert not self.scheduler.running and not self.loop._jobs

    def _publish(self, batch: list[Delivery], report: StepReport | None) -> None:
        self.publications += 1
        if report is not None:
            self.reports.append(report)
        for stream, item in batch:
            self.heard[stream].items.append(item)


def finish_of(heard: Heard) -> FinishEvent:
    assert isinstance(heard.last, FinishEvent)
    assert sum(not isinstance(item, TextEvent) for item in heard.items) == 1
    return heard.last


def is_fault(heard: Heard) -> bool:
    return isinstance(heard.last, EngineFaultError) and all(isinstance(item, TextEvent) for item in heard.items[:-1])


def alone(request: Request) -> list[Event | OctavoError]:
    bench = Bench()
    heard = bench.submit(request)
    bench.finish()
    return heard.items


NO_TIMINGS = Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0)


def essence(items: list[Event | OctavoError]) -> list[object]:
    """Everything of a request's events but the times, and what it found cached and had to compute again."""
    return [_timeless(item) if isinstance(item, FinishEvent) else item for item in items]


def _timeless(finish: FinishEvent) -> FinishEvent:
    return replace(finish, timings=NO_TIMINGS, cached_tokens=0, cache=None, preemptions=0)
