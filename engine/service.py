"""The async door of the engine: requests go in by `submit`, events come out of the stream that it returns."""

import asyncio
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import FinishEvent, FinishReason, Pooling, Request, TextEvent
from engine.errors import ContextLengthError, EngineNotReadyError, InputLengthError, QueueFullError, RequestError
from engine.memory.memory import Memory
from engine.run.embedding import Embeddings
from engine.run.event_stream import EventStream
from engine.run.outputs import RequestOutput
from engine.run.runner_protocol import ModelRunner
from engine.run.sequence import TokenSequence
from engine.run.status import EngineStatus, LaneStatus, LaneTime, StepReport
from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.loop import Delivery, EngineLoop, Job
from engine.scheduling.scheduler import Scheduler
from engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

__all__ = ["EngineService", "EngineStatus", "EventStream", "LaneStatus", "StepReport"]

TEXTS_PER_LANE = 2  # open texts of one call of `embed`, per lane: one runs, and the next one waits


class EngineService:
    """Owns the engine's thread, and the runner, which it closes at the end; belongs to the event loop's thread."""

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        config: EngineConfig,
        pooling: Pooling | None = Pooling.LAST,
    ) -> None:
        """`pooling`: how the model makes embeddings; None where it makes none."""
        memory = Memory(runner, config.lanes, cache_folder=config.cache_dir, identity=config.cache_identity)
        memory.load()  # not in start(): the event loop's thread has connections to answer then
        self.context_length = _most_tokens(memory, runner.context_length)
        self._runner = runner
        self._tokenizer = tokenizer
        self._config = config
        self._memory = memory
        self._pooling = pooling
        self._scheduler = Scheduler(config, memory, runner)
        sampler = Sampler(min(runner.vocab_size, tokenizer.vocab_size))
        self._engine = EngineLoop(runner, self._scheduler, sampler, self._publish)
        self._thread = threading.Thread(target=self._engine.run, name="octavo-engine", daemon=True)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._accepting = False
        self._stopping = False
        self._runner_closed = False
        self._open: set[EventStream] = set()  # requests whose end the engine has not announced
        self._on_end: dict[EventStream, Callable[[], None]] = {}  # what follows on the end of some of them
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._lane_time = LaneTime(config.lanes)
        self.observers: list[Callable[[StepReport], None]] = []  # called once a step, in the event loop's thread

    @property
    def running(self) -> int:
        """Requests that hold a lane."""
        return len(self._engine.status.running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a lane."""
        return max(0, len(self._open) - self.running)

    def status(self) -> EngineStatus:
        """Tell what runs now, as the engine's thread left it a moment ago."""
        told = self._engine.status
        return replace(
            told,
            waiting=max(0, len(self._open) - len(told.running)),
            estimated_wait=self._lane_time.wait(len(self._open)),
            alive=self._event_loop is None or (self._thread.is_alive() and not self._engine.is_stuck),
        )

    def start(self) -> None:
        """Start the engine's thread; events will arrive in the running event loop."""
        self._event_loop = asyncio.get_running_loop()
        self._thread.start()
        self._accepting = True

    async def stop(self, drain_seconds: float) -> None:
        """Refuse new requests, give the accepted ones `drain_seconds` to finish, end the rest, and close the runner.

        May be called again while it waits, to cut the wait short.
        """
        self._accepting = False
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_seconds):
                await self._none_open.wait()
        self._stopping = True
        is_sound = self._thread.is_alive()
        if is_sound:
            self._engine.stop()
            await asyncio.to_thread(self._thread.join)
        if not self._runner_closed:
            self._runner_closed = True
            if is_sound:  # the blocks of a broken engine are not trusted
                await asyncio.to_thread(self._memory.save)
            self._runner.close()

    def submit(self, *requests: Request) -> list[EventStream]:
        """Queue requests, all or none, and return the events of each.

        Raises at once: ContextLengthError, RequestError (a token id out of range), QueueFullError, EngineNotReadyError.
        """
        self._check_ready()
        limits = [self._check_request(request) for request in requests]
        self._check_count(len(requests))
        self.check_room(len(requests))
        jobs = [self._job(request, limit) for request, limit in zip(requests, limits, strict=True)]
        return [self._enqueue(job) for job in jobs]

    def embed(
        self,
        name: str,
        prompts: Iterable[Prompt],
        *,
        priority: int = 0,
        caller: bytes = b"",
        cache_salt: str = "",
    ) -> Embeddings:
        """Queue texts for their embeddings, a few at a time, so that one call does not fill the queue.

        Raises at once as `submit` does; the error names the text at fault: input[2].
        """
        self._check_ready()
        if self._pooling is None:
            raise RequestError("This model makes no embeddings; use one that does.", param="model")
        requests = [
            Request(
                id=name,
                choice=place,
                prompt=prompt,
                max_tokens=0,
                pooling=self._pooling,
                priority=priority,
                caller=caller,
                cache_salt=cache_salt,
            )
            for place, prompt in enumerate(prompts)
        ]
        for request in requests:
            self._check_text(request)
        self.check_room(1)
        embeddings = Embeddings(requests, lambda request: self._enqueue_text(request, embeddings))
        room = self._config.lanes + self._config.max_waiting - len(self._open)
        for _ in range(min(room, TEXTS_PER_LANE * self._config.lanes)):
            embeddings.queue_next()
        return embeddings

    def _check_text(self, request: Request) -> None:
        param = f"input[{request.choice}]"
        assert request.prompt
        self._check_ids(request.prompt, param)
        if len(request.prompt) > self.context_length:
            raise InputLengthError(len(request.prompt), self.context_length, param=param)

    def _enqueue_text(self, request: Request, embeddings: Embeddings) -> EventStream | None:
        if self._stopping:
            return None
        stream = self._enqueue(self._job(request, 0))
        self._on_end[stream] = embeddings.queue_next
        return stream

    def _job(self, request: Request, max_new_tokens: int) -> Job:
        sequence = TokenSequence(request, max_new_tokens, TokenChooser(request, self._tokenizer.end_ids))
        output = RequestOutput(request, self._tokenizer, max_new_tokens)
        return Job(sequence, output, EventStream(lambda: self._engine.abort(sequence)))

    def _enqueue(self, job: Job) -> EventStream:
        self._open.add(job.stream)
        self._none_open.clear()
        self._engine.submit(job)
        return job.stream

    def _check_ready(self) -> None:
        if not self._accepting:
            raise EngineNotReadyError("The server is starting or stopping; send the request again later.")
        if not self._thread.is_alive():
            raise EngineNotReadyError("The engine has stopped after an internal fault; restart the server.")

    def _check_request(self, request: Request) -> int:
        """Return how many tokens the request may generate: at most what the context has room for."""
        least = 1 if request.prompt_logprobs is None else 0
        assert request.prompt and (request.max_tokens is None or request.max_tokens >= least)
        sampling = request.sampling
        self._check_ids(request.prompt, "prompt")
        self._check_ids([token for token, _ in sampling.logit_bias], "logit_bias")
        self._check_ids(sampling.allowed_tokens or (), "allowed_token_ids")
        self._check_ids([token for sequence in sampling.banned_sequences for token in sequence], "bad_words")
        self._check_ids(request.stop_tokens, "stop_token_ids")
        room = self.context_length - len(request.prompt)
        if room < 1:
            raise ContextLengthError(len(request.prompt), self.context_length)
        return room if request.max_tokens is None else min(room, request.max_tokens)

    def _check_ids(self, tokens: Iterable[int], param: str) -> None:
        for token in (min(tokens, default=0), max(tokens, default=0)):
            if not 0 <= token < self._runner.vocab_size:
                raise RequestError(
                    f"{param} holds token id {token}; ids of this model are 0 to {self._runner.vocab_size - 1}.",
                    param=param,
                )

    def _check_count(self, count: int) -> None:
        capacity = self._config.lanes + self._config.max_waiting
        if count > capacity:
            raise RequestError(
                f"{count} answers at once are more than the {capacity} that this server takes.", param="n"
            )

    def check_room(self, count: int) -> None:
        """Raise QueueFullError where so many requests more would find no place.

        Every open request counts, so that a burst to an idle engine may fill all lanes before one is admitted.
        """
        if len(self._open) + count > self._config.lanes + self._config.max_waiting:
            wait = self._lane_time.wait(len(self._open))
            raise QueueFullError(self._config.max_waiting, retry_after=max(1.0, wait))

    def _publish(self, batch: list[Delivery], report: StepReport | None) -> None:
        """Called by the engine's thread, once a step. A closed event loop has no readers left."""
        assert self._event_loop is not None
        with suppress(RuntimeError):
            self._event_loop.call_soon_threadsafe(self._deliver, batch, report)

    def _deliver(self, batch: list[Delivery], report: StepReport | None) -> None:
        for stream, item in batch:
            stream.deliver(item)
            if isinstance(item, TextEvent):
                continue
            self._open.discard(stream)
            self._follow_up(stream)
            if isinstance(item, FinishEvent) and item.reason is not FinishReason.ABORT:
                self._lane_time.note(item.timings.prefill_seconds + item.timings.decode_seconds)
        if not self._open:
            self._none_open.set()
        if report is not None:
            for observe in self.observers:
                observe(report)

    def _follow_up(self, stream: EventStream) -> None:
        """Do what waited for the end of a request. A fault there ends no other request."""
        try:
            self._on_end.pop(stream, lambda: None)()
        except Exception:
            logger.exception("fault after the end of a request")


def _most_tokens(memory: Memory, context_length: int) -> int:
    """The longest sequence that the memory could hold if it were alone."""
    return bisect_left(range(1, context_length + 1), True, key=lambda tokens: not memory.fits(tokens))
