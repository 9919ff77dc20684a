"""The engine's thread: schedule, run, sample, commit, publish, and again; it sleeps while there is nothing to do."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError, EngineNotReadyError, OctavoError
from engine.event_stream import EventStream
from engine.outputs import RequestOutput
from engine.request import Event, FinishEvent, FinishReason
from engine.runner_protocol import ModelRunner, SequenceRows
from engine.sampler import Sampler
from engine.scheduler import PlannedRows, Scheduler
from engine.sequence import Sequence

logger = logging.getLogger(__name__)

Delivery = tuple[EventStream, Event | OctavoError]


@dataclass(frozen=True, slots=True)
class Job:
    """A sequence with what lies around it: its text and the stream that its reader holds."""

    sequence: Sequence
    output: RequestOutput
    stream: EventStream


@dataclass(frozen=True, slots=True)
class Abort:
    """The reader has gone."""

    sequence: Sequence


class Stop:
    """End the thread after this step; what still runs ends with EngineNotReadyError."""


class EngineLoop:
    """Runs in one thread. Others talk to it through `submit`, `abort` and `stop`, and hear of it through `publish`."""

    def __init__(
        self, runner: ModelRunner, scheduler: Scheduler, sampler: Sampler, publish: Callable[[list[Delivery]], None]
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._sampler = sampler
        self._deliver = publish
        self._inbox: SimpleQueue[Job | Abort | Stop] = SimpleQueue()
        self._jobs: dict[Sequence, Job] = {}
        self._outbox: list[Delivery] = []
        self._stopping = False

    def submit(self, job: Job) -> None:
        """Queue a request; from any thread."""
        job.sequence.submitted_at = time.perf_counter()
        self._inbox.put(job)

    def abort(self, sequence: Sequence) -> None:
        """End a request without more text, if it has not ended; from any thread."""
        self._inbox.put(Abort(sequence))

    def stop(self) -> None:
        """End the thread after the step it is in; from any thread."""
        self._inbox.put(Stop())

    def run(self) -> None:
        """Serve until stopped. No stream is left open, even if a fault of ours ends the loop."""
        ending: type[OctavoError] = EngineFaultError
        message = "The engine has stopped after an internal fault; restart the server and report what its log says."
        try:
            while not self._stopping:
                self._take_commands()
                self.step()
            ending, message = EngineNotReadyError, "The server is stopping; send the request again later."
        finally:
            while not self._inbox.empty():
                self._obey(self._inbox.get())
            for sequence in list(self._jobs):
                self._end(sequence, ending(message))
            self._publish()

    def step(self) -> None:
        """Advance every running sequence once."""
        plan = self._scheduler.schedule()
        logits = self._run(plan)
        tokens = self._sample(logits)
        self._commit(tokens)
        self._publish()

    def _take_commands(self) -> None:
        """Obey what has arrived; wait for the first command only while there is no work."""
        if not self._scheduler.has_work:
            self._obey(self._inbox.get())
        while not self._inbox.empty():
            self._obey(self._inbox.get())

    def _obey(self, command: Job | Abort | Stop) -> None:
        match command:
            case Job():
                self._jobs[command.sequence] = command
                self._scheduler.add(command.sequence)
            case Abort() if command.sequence in self._jobs:
                self._finish(command.sequence, FinishReason.ABORT, time.perf_counter())
            case Stop():
                self._stopping = True

    def _run(self, plan: list[PlannedRows]) -> list[tuple[Sequence, NDArray[np.float32]]]:
        """Compute the plan; return the logits of each sequence whose next token can be chosen."""
        sequences = [rows.sequence for rows in plan]
        for sequence in sequences:
            sequence.started_at = sequence.started_at or time.perf_counter()
        ready = [rows.sequence for rows in plan if rows.wants_logits]
        with self._ending_on_fault(*sequences):
            logits = self._runner.run([_rows(rows) for rows in plan]) if plan else ()
            results = list(zip(ready, logits, strict=True))
            self._scheduler.advance(plan)
            return results
        return []

    def _sample(self, logits: list[tuple[Sequence, NDArray[np.float32]]]) -> list[tuple[Sequence, int]]:
        tokens = []
        for sequence, row in logits:
            with self._ending_on_fault(sequence):
                tokens.append((sequence, self._sampler.choose(row, sequence.chooser)))
        return tokens

    def _commit(self, tokens: list[tuple[Sequence, int]]) -> None:
        """Append each token, make its text, and end what is complete: the only loop over a step's outputs."""
        now = time.perf_counter()
        for sequence, token in tokens:
            with self._ending_on_fault(sequence):
                self._append(sequence, token, now)

    def _append(self, sequence: Sequence, token: int, now: float) -> None:
        job = self._jobs[sequence]
        sequence.tokens.append(token)
        sequence.first_token_at = sequence.first_token_at or now
        event = job.output.push(token)
        if event is not None:
            self._outbox.append((job.stream, event))
        if job.output.finish_reason is not None:
            self._finish(sequence, job.output.finish_reason, now)

    def _publish(self) -> None:
        """Hand over all events of a step at once."""
        if self._outbox:
            self._deliver(self._outbox)
            self._outbox = []

    def _finish(self, sequence: Sequence, reason: FinishReason, now: float) -> None:
        event = FinishEvent(
            reason=reason,
            prompt_tokens=sequence.prompt_tokens,
            completion_tokens=sequence.new_tokens,
            timings=sequence.timings(now),
        )
        self._end(sequence, event)

    def _end(self, sequence: Sequence, last: FinishEvent | OctavoError) -> None:
        """Free all that a request holds and send the last its stream will hear."""
        self._scheduler.remove(sequence)
        self._outbox.append((self._jobs.pop(sequence).stream, last))

    @contextmanager
    def _ending_on_fault(self, *sequences: Sequence) -> Iterator[None]:
        """A fault of ours in the block ends these requests, is logged, and touches no other."""
        try:
            yield
        except Exception as error:
            names = ", ".join(sequence.request.id for sequence in sequences)
            logger.exception("fault while serving %s", names)
            known = isinstance(error, EngineFaultError)
            message = str(error) if known else "The server failed on this request; report what its log says."
            for sequence in sequences:
                self._end(sequence, EngineFaultError(message))


def _rows(rows: PlannedRows) -> SequenceRows:
    sequence = rows.sequence
    return SequenceRows(
        tokens=sequence.tokens[sequence.computed : sequence.computed + rows.count],
        position=sequence.computed,
        block_table=sequence.blocks,
        wants_logits=rows.wants_logits,
    )
