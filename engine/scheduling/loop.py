"""The engine's thread: schedule, run, answer, publish, and again; it sleeps while there is nothing to do."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from engine.api.request import Event, FinishEvent, FinishReason, TokenLogprob
from engine.errors import EngineFaultError, EngineNotReadyError, OctavoError, RequestError
from engine.run.event_stream import EventStream
from engine.run.outputs import RequestOutput
from engine.run.runner_protocol import ModelRunner
from engine.run.sequence import TokenSequence
from engine.run.status import EngineStatus, StepReport, StepWatch
from engine.run.step import Computed, StepPlan, compute
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler

logger = logging.getLogger(__name__)

Delivery = tuple[EventStream, Event | OctavoError]


@dataclass(frozen=True, slots=True)
class Job:
    """A sequence, its text, and the stream that its reader holds."""

    sequence: TokenSequence
    output: RequestOutput
    stream: EventStream


@dataclass(frozen=True, slots=True)
class Abort:
    """The reader has gone."""

    sequence: TokenSequence


class Stop:
    """End the thread after this step; what still runs ends with EngineNotReadyError."""


class EngineLoop:
    """Runs in one thread. Others talk to it through `submit`, `abort` and `stop`, and hear of it through `publish`."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        sampler: Sampler,
        publish: Callable[[list[Delivery], StepReport | None], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`clock`: seconds, monotonic; the engine uses no other clock."""
        self._runner = runner
        self._scheduler = scheduler
        self._sampler = sampler
        self._deliver = publish
        self._clock = clock
        self._inbox: SimpleQueue[Job | Abort | Stop] = SimpleQueue()
        self._jobs: dict[TokenSequence, Job] = {}
        self._timed: set[TokenSequence] = set()  # jobs that have a deadline
        self._outbox: list[Delivery] = []
        self._report: StepReport | None = None  # of the last step, until it is published
        self._publish_fault: Exception | None = None  # while a step was computed
        self._stopping = False
        self._watch = StepWatch()
        self.status: EngineStatus = scheduler.status()  # replaced in each step, never changed: any thread may read it

    @property
    def is_stuck(self) -> bool:
        """Whether the step that runs should have ended long ago; from any thread."""
        return self._watch.is_stuck(self._clock())

    def submit(self, job: Job) -> None:
        """Queue a request; from any thread."""
        job.sequence.course.submitted_at = self._clock()
        self._inbox.put(job)

    def abort(self, sequence: TokenSequence) -> None:
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
            self.status = self._scheduler.status()
            self._publish()

    def step(self) -> None:
        """Advance every running sequence, or at least some of them.

        The events of a step are published while the next step is computed, or at once if there is no next step.
        Publishing wakes the event loop. While a step is computed, that costs the time of one thread; between steps all
        threads of the team would wait.
        """
        began = self._clock()
        plan = self._scheduler.schedule()
        self._watch.begin(began, plan.total_rows)
        if len(self.status.running) != len(self._scheduler.running):
            self.status = self._scheduler.status()  # at once; else while other threads compute
        computed = self._run(plan)
        if self._publish_fault is not None:
            raise self._publish_fault
        self._publish()  # if there was no run, or it did not come to that
        accepted = self._answer(computed)
        ended = self._clock()
        if computed:
            self._scheduler.pace.note(plan.single_rows, plan.chunks, ended - began, plan.draft_rows)
        if self._scheduler.speculation.follows:
            ended = self._draft(computed, plan, ended)
        self._watch.end(ended)
        self._report = _report(plan, ended - began, accepted)
        if not self._scheduler.has_work:
            self.status = self._scheduler.status()
            self._publish()

    def _take_commands(self) -> None:
        """Obey the commands that have arrived. Without work, wait for the first command."""
        if not self._scheduler.has_work:
            self._obey(self._inbox.get())
        while not self._inbox.empty():
            self._obey(self._inbox.get())
        self._end_overdue()

    def _obey(self, command: Job | Abort | Stop) -> None:
        match command:
            case Job():
                self._jobs[command.sequence] = command
                if command.sequence.deadline is not None:
                    self._timed.add(command.sequence)
                try:
                    self._scheduler.add(command.sequence)
                except Exception as error:
                    self._fail(command.sequence, error)
            case Abort() if command.sequence in self._jobs:
                self._finish(command.sequence, FinishReason.ABORT, self._clock())
            case Stop():
                self._stopping = True

    def _end_overdue(self) -> None:
        """End sequences whose time is up and that get no token from the next step; others end with their next token."""
        now = self._clock()
        for sequence in [sequence for sequence in self._timed if _is_due(sequence, now)]:
            if not self._scheduler.is_answering(sequence):
                job = self._jobs[sequence]
                if (event := job.output.end()) is not None:
                    self._outbox.append((job.stream, event))
                assert job.output.finish_reason is not None
                self._finish(sequence, job.output.finish_reason, now, stop=job.output.stop)

    def _run(self, plan: StepPlan) -> list[Computed]:
        """Compute the plan. After a fault in a step of several sequences, each of them is computed alone."""
        for sequence, error in plan.faults:
            self._fail(sequence, error)
        self._note_start(plan)
        try:
            computed = compute(self._runner, plan, self._publish_meanwhile)
        except Exception as error:
            if len(plan.rows) == 1 and not plan.draft_rows:
                self._fail(plan.rows[0].sequence, error)
            else:
                logger.exception("a step of %d requests failed; each is computed alone", len(plan.rows))
                self._scheduler.isolate(plan)
            return []
        for planned in plan.rows:
            try:
                self._scheduler.advance(planned)
            except Exception as error:
                self._fail(planned.sequence, error)
        return [step for step in computed if step.planned.sequence in self._jobs]

    def _publish_meanwhile(self) -> None:
        """Publish while other threads compute the step. A fault in publishing is no fault of the step: see `step`."""
        try:
            self.status = self._scheduler.status()
            self._publish()
        except Exception as error:
            self._publish_fault = error

    def _note_start(self, plan: StepPlan) -> None:
        now, lanes = self._clock(), len(plan.rows)
        for planned in plan.rows:
            course = planned.sequence.course
            course.started_at = course.started_at or now
            if planned.is_decode:
                course.decode_steps += 1
                course.decode_lanes += lanes

    def _answer(self, computed: list[Computed]) -> int:
        """Choose the next token of each sequence that is computed to its end. No other loop runs over a step's outputs.

        Returns how many drafts were right.
        """
        now, accepted = self._clock(), 0
        for step in computed:
            sequence = step.planned.sequence
            try:  # no context manager: this is done for each token while no other thread has anything to do
                if sequence.scores_prompt or sequence.pooler is not None:
                    self._read_prompt(step)
                if sequence.pending == 0:
                    accepted += self._continue(step, now)
            except Exception as error:
                self._fail(sequence, error)
        return accepted

    def _read_prompt(self, step: Computed) -> None:
        """Note how likely the prompt's tokens were, and take its hidden states, where asked for.

        A row of logits tells of the token after it.
        """
        sequence, position = step.planned.sequence, step.planned.rows.position
        if sequence.new_tokens > 0:
            return
        if position == 0:
            sequence.begin_prompt()
        if sequence.pooler is not None:
            sequence.pooler.push(step.final)
        top = sequence.request.prompt_logprobs
        if top is not None:
            for row, token in zip(step.logits, sequence.request.prompt.tokens[position + 1 :], strict=False):
                sequence.prompt_logprobs.append(self._sampler.logprob(row, token, top))

    def _continue(self, step: Computed, now: float) -> int:
        """Choose the next token and append it. While the token equals the next draft, go on with the row of that draft.

        Returns how many drafts were right. Rows of wrong drafts have filled blocks; later rows overwrite what is there
        before any row reads it.
        """
        sequence, drafts, accepted = step.planned.sequence, step.planned.drafts, 0
        if sequence.max_new_tokens == 0:
            self._finish(sequence, FinishReason.LENGTH, now)
            return 0
        if not drafts:
            self._choose(step.logits[-1], step.likeliest[-1], sequence, now)
            return 0
        sequence.course.drafted += len(drafts)
        rows = slice(-1 - len(drafts), None)
        for row, likeliest, draft in zip(step.logits[rows], step.likeliest[rows], (*drafts, None), strict=True):
            token = self._choose(row, likeliest, sequence, now)
            if token != draft:
                break
            accepted += 1
            sequence.course.accepted += 1
            if sequence not in self._jobs:
                return accepted
            self._scheduler.accept(sequence)
        if accepted < len(drafts) and sequence in self._jobs:
            self._runner.rewind(sequence.held.state_slot, 1 + accepted)
        return accepted

    def _choose(self, row: NDArray[np.float32], likeliest: int, sequence: TokenSequence, now: float) -> int:
        """Draw a token from its logits, and append it."""
        token, top = self._sampler.choose(row, sequence.chooser, likeliest), sequence.request.logprobs
        self._append(sequence, token, None if top is None else self._sampler.logprob(row, token, top), now)
        return token

    def _draft(self, computed: list[Computed], plan: StepPlan, began: float) -> float:
        """Have the model's own draft block guess for the next step. Returns the time at the end."""
        try:
            rounds = self._scheduler.speculation.follow(computed)
        except Exception:
            logger.exception("the draft block failed; answers go on without it")
            self._scheduler.speculation.stop_following()
            return self._clock()
        ended = self._clock()
        if computed and not plan.chunks:
            self._scheduler.pace.note_rounds(rounds, ended - began)
        return ended

    def _append(self, sequence: TokenSequence, token: int, logprob: TokenLogprob | None, now: float) -> None:
        job, course = self._jobs[sequence], sequence.course
        sequence.tokens.append(token)
        course.first_token_at = course.first_token_at or now
        output = job.output
        event = output.push(token, logprob, is_last=sequence in self._timed and _is_due(sequence, now))
        if event is not None:
            self._outbox.append((job.stream, event))
        if output.finish_reason is not None:
            self._finish(sequence, output.finish_reason, now, stop=output.stop)

    def _publish(self) -> None:
        """Hand over all events of a step at once, and what the step took. They are kept if that fails."""
        if self._outbox or self._report is not None:
            self._deliver(self._outbox, self._report)
            self._outbox, self._report = [], None

    def _finish(self, sequence: TokenSequence, reason: FinishReason, now: float, stop: str | int | None = None) -> None:
        held, right = sequence.held, self._scheduler.speculation.predicted_right(sequence)
        event = FinishEvent(
            reason=reason,
            prompt_tokens=sequence.prompt_tokens,
            completion_tokens=sequence.new_tokens,
            timings=sequence.course.timings(now),
            cached_tokens=held.cached_tokens,
            cache=held.cache_report,
            preemptions=sequence.standing.preemptions,
            accepted_prediction_tokens=right,
            rejected_prediction_tokens=len(sequence.request.prediction) - right,
            stop=stop,
            prompt_logprobs=tuple(sequence.prompt_logprobs),
            embedding=sequence.pooler.vector() if sequence.pooler is not None and sequence.pending == 0 else None,
        )
        self._end(sequence, event)

    def _end(self, sequence: TokenSequence, last: FinishEvent | OctavoError, *, is_faulty: bool = False) -> None:
        """Free all that a request holds and send the last its stream will hear."""
        self._scheduler.remove(sequence, is_faulty=is_faulty)
        self._timed.discard(sequence)
        self._outbox.append((self._jobs.pop(sequence).stream, last))

    def _fail(self, sequence: TokenSequence, error: Exception) -> None:
        """End one request, by a fault of ours or by an error of its own that showed only now; no other is touched.

        What the model computed for a request with an error of its own is sound, and stays cached.
        """
        if isinstance(error, RequestError):
            logger.warning("request %s ends with an error of its own: %s", sequence.request.id, error)
            self._end(sequence, error)
            return
        logger.error("fault while serving %s", sequence.request.id, exc_info=error)
        ours = EngineFaultError("The server failed on this request; report what its log says.")
        self._end(sequence, error if isinstance(error, OctavoError) else ours, is_faulty=True)


def _is_due(sequence: TokenSequence, now: float) -> bool:
    return sequence.deadline is not None and now >= sequence.deadline


def _report(plan: StepPlan, seconds: float, accepted: int) -> StepReport | None:
    """Describe a step; None if the step had no rows."""
    if not plan.rows:
        return None
    return StepReport(
        prefill_rows=plan.total_rows - plan.decode_rows - plan.draft_rows,
        decode_rows=plan.decode_rows,
        sequences=len(plan.rows),
        seconds=seconds,
        draft_rows=plan.draft_rows,
        accepted_drafts=accepted,
        preempted=plan.preempted,
    )
