"""Decides which sequences run and how many tokens of each go into the next step; no clock, no threads.

Memory is given out block by block as sequences grow. Where a sequence cannot grow, the one of the lowest urgency gives
up all that it holds and waits in its old place, with its tokens kept: it is computed again, with the same bits. There
is no deadlock and no livelock, because ranks are a total order that changes only when a request arrives: the most
urgent sequence that runs is never the one to give way to another, alone it can have all blocks, which `add` checked
are enough, and so it ends. Then the same holds for the next. Only a bounded number of later requests can be more
urgent, and a rank gets later only a bounded number of times (see WaitingQueue).
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

from engine.api.config import EngineConfig
from engine.memory.memory import Memory
from engine.run.pace import Pace
from engine.run.runner_protocol import MAX_KEPT_ROWS, ModelRunner
from engine.run.sequence import TokenSequence
from engine.run.status import EngineStatus, LaneStatus
from engine.run.step import PlannedRows, StepPlan, planned_rows, step_plan
from engine.scheduling.admission import WaitingQueue, rank_of
from engine.scheduling.chunks import ChunkBudget
from engine.scheduling.speculation.speculation import Speculation

MOST_REPEATS = 31  # times in a row that a plan is used again: then plan and targets are made anew

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Scheduler:
    """Sequences wait, run, may have to wait again, and end; each step is planned anew from what runs."""

    def __init__(self, config: EngineConfig, memory: Memory, runner: ModelRunner) -> None:
        most = min(runner.max_rows, runner.max_logit_rows)
        if config.lanes > most:
            raise ValueError(f"lanes must be at most the {most} rows of a step, not {config.lanes}.")
        self._config = config
        self._memory = memory
        self._block_tokens = runner.block_tokens
        self._max_rows = runner.max_rows
        self._max_logit_rows = runner.max_logit_rows
        self._has_states = runner.state_slots > 0
        self.waiting = WaitingQueue(
            turn=config.lanes + config.max_waiting, across_callers=config.priorities_across_callers
        )
        self.running: list[TokenSequence] = []  # the most urgent first
        self.pace = Pace()
        self.speculation = Speculation(config, self.pace, runner.draft, runner.block_tokens)
        self._chunks = ChunkBudget(config, self.pace)
        self._was_alone = False  # whether the last step was a suspect's own
        self._preempted = 0  # since the step began
        self._faults: list[tuple[TokenSequence, Exception]] = []  # likewise
        self._refused: tuple[TokenSequence, int, int] | None = None  # the sequence that did not fit, lanes, free blocks
        self._last: StepPlan | None = None  # if every sequence that ran had one row in it
        self._repeats = 0  # of that plan

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def status(self) -> EngineStatus:
        """Tell what runs now, for those outside the engine's thread."""
        memory = self._memory
        return EngineStatus(
            lanes=self._config.lanes,
            running=tuple([_lane_status(sequence) for sequence in self.running]),
            waiting=len(self.waiting),
            blocks=memory.blocks,
            free_blocks=memory.free_blocks,
            cached_blocks=memory.cached_blocks,
            looked_up_tokens=memory.looked_up_tokens,
            hit_tokens=memory.hit_tokens,
            evicted_blocks=memory.evicted_blocks,
            itl_target_seconds=self._chunks.last_target,
        )

    def is_answering(self, sequence: TokenSequence) -> bool:
        """Whether a sequence has begun its answer and goes on with it, a token a step; one that was preempted waits."""
        return sequence.new_tokens > 0 and sequence.pending == 1 and sequence in self.running

    def add(self, sequence: TokenSequence) -> None:
        """Queue a sequence that the memory could hold by itself to its end."""
        assert self._memory.fits(sequence.worst_case_tokens)
        self.waiting.add(sequence, self.running)
        self.running.sort(key=rank_of)

    def remove(self, sequence: TokenSequence, *, is_faulty: bool = False) -> None:
        """Drop a sequence at any stage, and free what it holds; is_faulty: what it computed is not trusted."""
        if sequence in self.running:
            self.running.remove(sequence)
        self.waiting.discard(sequence)
        self.speculation.drop(sequence)
        if is_faulty:
            self._memory.forget(sequence)
        else:
            self._memory.release(sequence)
        if not sequence.request.caches_prompt and not any(map(sequence.shares_cache_with, self._all())):
            self._memory.drop_cached(sequence)

    def _all(self) -> Iterator[TokenSequence]:
        return chain(self.running, self.waiting)

    def schedule(self) -> StepPlan:
        """Admit what fits, then plan a step: one row of each decoding sequence, then rows of prompts, oldest first.

        A step without rows of prompts has drafts, if there are any worth it.
        """
        self._preempted, self._faults = 0, []
        self._admit()
        if self._last is not None and self._goes_on(self._last):
            return self._again(self._last)
        among = self._chosen()
        single = self._plan_single_rows(among)
        prompts = self._plan_prompts(among, len(single))
        rows = single + prompts if prompts else self._with_drafts(single)
        plan = self._plan(rows)
        all_single = plan.decode_rows == plan.total_rows == len(self.running) and plan.total_rows > 0
        self._last, self._repeats = plan if all_single and not (plan.preempted or plan.faults) else None, 0
        return plan

    def _plan(self, planned: Iterable[PlannedRows]) -> StepPlan:
        rows = (rows for rows in planned if rows.sequence in self.running)  # some may have had to give way
        return step_plan(rows, self._preempted, self._faults)

    def _rows(self, sequence: TokenSequence, count: int, drafts: tuple[int, ...] = ()) -> PlannedRows:
        return planned_rows(sequence, count, drafts, needs_states=self.speculation.follows)

    def _goes_on(self, last: StepPlan) -> bool:
        """Whether the next step is the last one moved on by a row: nobody came or went, and all have room.

        Most steps are. To plan a step anew takes time in which all other threads wait.
        """
        if len(last.rows) != len(self.running) or self._repeats == MOST_REPEATS:
            return False
        for rows, sequence in zip(last.rows, self.running, strict=True):
            end = sequence.held.computed + 1
            if rows.sequence is not sequence or len(sequence.tokens) != end or not self._memory.holds(sequence, end):
                return False
        return True

    def _again(self, last: StepPlan) -> StepPlan:
        self._repeats += 1
        self._chunks.pass_over()
        single = [self._rows(sequence, 1) for sequence in self.running]
        rows = self._with_drafts(single)
        if self._faults or any([row.drafts for row in rows]):
            return self._plan(rows)
        return last._replace(rows=tuple(rows))

    def advance(self, planned: PlannedRows) -> None:
        """Note that planned rows were computed, except the drafts, of which nothing is known yet."""
        self._memory.advance(planned.sequence, planned.known_rows)

    def accept(self, sequence: TokenSequence) -> None:
        """Note that the first draft left is the sequence's next token: its row is computed."""
        self._memory.advance(sequence, 1)

    def isolate(self, plan: StepPlan) -> None:
        """After a fault in a step of several: have what was planned computed again, each sequence alone.

        The states in slots may have moved on or not, so sequences that have one begin again.
        """
        self._last = None
        for planned in plan.rows:
            sequence = planned.sequence
            sequence.standing.alone_until = planned.rows.position + planned.known_rows
            if planned.drafts:
                self.speculation.distrust(sequence)
            if self._has_states:
                self._preempt(sequence)

    # Admission

    def _admit(self) -> None:
        while len(self.running) < self._config.lanes and self.waiting:
            sequence = self.waiting.next(self.running, self._may_start)
            if sequence is None or not self._try_start(sequence):
                return

    def _may_start(self, sequence: TokenSequence) -> bool:
        """Whether to start a sequence now. Of several answers to one prompt, the first computes the prompt for all."""
        if sequence.needs_whole_prompt or sequence.prompt_tokens <= self._block_tokens:
            return True
        request = sequence.request
        return not any(
            other.new_tokens == 0 and other.request.id == request.id and other.request.prompt == request.prompt
            for other in self.running
        )

    def _try_start(self, sequence: TokenSequence) -> bool:
        """Give a sequence a lane, if there is room for its next rows and for those of all that run; False if not."""
        now = (sequence, len(self.running), self._memory.free_blocks)
        blocks = sum(map(self._next_blocks, [sequence, *self.running]))
        if now == self._refused or (self.running and not self._memory.has_room(blocks * self._block_tokens)):
            return False
        self.waiting.discard(sequence)
        insort(self.running, sequence, key=rank_of)
        has_room = self._unless_faulty(self._attach, sequence)
        if has_room is False:  # its own cached blocks took the last room for its rows
            self._stop(sequence)
            self._memory.forget_hit(sequence)
            self._refused = now
        return has_room is not False

    def _next_blocks(self, sequence: TokenSequence) -> int:
        """How many blocks a sequence needs for its next rows; at least 1, as a reserve for each that runs."""
        end = sequence.computed + min(sequence.pending, self._config.prefill_rows)
        tables = sequence.held.tables
        return max(1, self._memory.blocks_for(end) - (len(tables[0]) if tables else 0))

    def _attach(self, sequence: TokenSequence) -> bool:
        self._memory.attach(sequence)
        return len(self.running) == 1 or self._memory.reach(sequence) > sequence.computed

    # Rows

    def _chosen(self) -> list[TokenSequence]:
        """Every running sequence, except that suspects of a fault alternate with the others, one suspect per step.

        The others take part in between because a suspect that cannot grow must give way to them.
        """
        suspects = [sequence for sequence in self.running if sequence.is_suspect]
        others = [sequence for sequence in self.running if not sequence.is_suspect]
        self._was_alone = bool(suspects) and not (others and self._was_alone)
        return suspects[:1] if self._was_alone else others

    def _plan_single_rows(self, among: list[TokenSequence]) -> list[PlannedRows]:
        """Plan one row of each that has one token to be fed."""
        planned = []
        for sequence in among:
            if sequence.pending == 1 and self._has_grown(sequence, sequence.computed + 1):
                planned.append(self._rows(sequence, 1))
        return planned

    def _with_drafts(self, single: list[PlannedRows]) -> list[PlannedRows]:
        """Add guessed tokens to the rows of sequences that decode, where that preempts nobody."""
        due = self.speculation.due([rows.sequence for rows in single])
        if not due:
            return single
        rooms = {sequence: self._unless_faulty(self._draft_room, sequence) or 0 for sequence in due}
        running = [rows for rows in single if rows.sequence in self.running]
        rooms = {rows.sequence: rooms[rows.sequence] for rows in running if rows.sequence in rooms}
        most = min(self._max_rows, self._max_logit_rows) - len(running)
        drafts = self.speculation.drafts(rooms, most, len(running))
        planned = []
        for rows in running:
            tokens = drafts.get(rows.sequence, ())
            end = rows.sequence.computed + 1 + len(tokens)
            has_room = bool(tokens) and self._unless_faulty(self._memory.grow, rows.sequence, end)
            planned.append(self._rows(rows.sequence, 1, tokens) if has_room else rows)
        return planned

    def _draft_room(self, sequence: TokenSequence) -> int:
        """How many drafts a sequence can have: its answer, its memory and the way back of a state limit them."""
        if sequence not in self.running or sequence.new_tokens == 0 or sequence.is_suspect:
            return 0
        room = min(
            sequence.max_new_tokens - sequence.new_tokens - 1, self._memory.reach(sequence) - sequence.computed - 1
        )
        if self._has_states:
            # A state is kept where a block ends, so no step may go beyond the end of a block.
            to_boundary = -(sequence.computed + 1) % self._block_tokens
            room = min(room, MAX_KEPT_ROWS - 1, to_boundary)
        return max(0, room)

    def _plan_prompts(self, among: list[TokenSequence], single_rows: int) -> list[PlannedRows]:
        """Deal out the rows and rows of logits that a step has left; a scored prompt needs logits of each row."""
        planned: list[PlannedRows] = []
        rows, logit_rows = self._max_rows - single_rows, self._max_logit_rows - single_rows
        self._chunks.begin(single_rows)
        for sequence in among:
            if sequence.pending > 1 and sequence in self.running:
                count = self._unless_faulty(self._chunk_rows, sequence, rows, logit_rows) or 0
                if count == 0:
                    continue
                chunk = self._rows(sequence, count)
                if chunk.rows.logit_rows <= logit_rows and self._has_grown(sequence, sequence.computed + count):
                    planned.append(chunk)
                    rows -= count
                    logit_rows -= chunk.rows.logit_rows
        return planned

    def _chunk_rows(self, sequence: TokenSequence, rows: int, logit_rows: int) -> int:
        """How many of its next rows a prompt gets. Limited to its own free room, at least 1."""
        self._memory.catch_up(sequence)
        room = max(1, self._memory.reach(sequence) - sequence.computed)
        wanted = min(sequence.pending, room, rows, logit_rows if sequence.is_scored else rows)
        if wanted == 0:
            return 0
        wanted = self._memory.chunk_end(sequence, sequence.computed + wanted) - sequence.computed
        return self._chunks.take(sequence.computed, wanted)

    # Memory

    def _has_grown(self, sequence: TokenSequence, tokens: int) -> bool:
        """Make room for positions below `tokens`, preempting the least urgent sequence (possibly this one)."""
        if self._memory.holds(sequence, tokens):
            return True
        while sequence in self.running:
            if self._unless_faulty(self._memory.grow, sequence, tokens):
                return True
            if sequence in self.running:
                self._preempt(self.running[-1])
        return False

    def _preempt(self, sequence: TokenSequence) -> None:
        sequence.standing.preemptions += 1
        self._preempted += 1
        self._stop(sequence)

    def _stop(self, sequence: TokenSequence) -> None:
        """Take lane and memory from a sequence and queue it; it will begin again from its tokens."""
        self.running.remove(sequence)
        self._memory.release(sequence)
        self.waiting.add(sequence, self.running)

    def _unless_faulty(
        self,
        act: Callable[Concatenate[TokenSequence, Arguments], Result],
        sequence: TokenSequence,
        *args: Arguments.args,
        **others: Arguments.kwargs,
    ) -> Result | None:
        """Do something for one sequence. If that fails, only this sequence is dropped."""
        try:
            return act(sequence, *args, **others)
        except Exception as error:
            self._faults.append((sequence, error))
            self.remove(sequence, is_faulty=True)
            return None


def _lane_status(sequence: TokenSequence) -> LaneStatus:
    request, held, prompt_tokens = sequence.request, sequence.held, sequence.prompt_tokens
    return LaneStatus(
        request.id,
        prompt_tokens=prompt_tokens,
        computed_tokens=held.computed,
        generated_tokens=len(sequence.tokens) - prompt_tokens,
        cached_tokens=held.cached_tokens,
        preemptions=sequence.standing.preemptions,
        caller=request.caller,
    )
