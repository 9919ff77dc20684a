"""The async door of the engine: requests go in by `submit`, events come out of the stream that it returns."""

import asyncio
import threading
from contextlib import suppress

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.errors import ContextLengthError, EngineNotReadyError, QueueFullError, RequestError
from engine.event_stream import EventStream
from engine.loop import Delivery, EngineLoop, Job
from engine.outputs import RequestOutput
from engine.request import FinishEvent, FinishReason, Request, TextEvent
from engine.runner_protocol import ModelRunner
from engine.sampler import Sampler, TokenChooser
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.text.tokenizer import Tokenizer

__all__ = ["EngineService", "EventStream"]


class EngineService:
    """Owns the engine's thread, and the runner, which it closes at the end; belongs to the event loop's thread."""

    def __init__(self, runner: ModelRunner, tokenizer: Tokenizer, config: EngineConfig) -> None:
        pool = BlockPool(runner.n_blocks, runner.block_tokens)
        self.context_length = min(runner.context_length, pool.capacity_tokens)
        self._runner = runner
        self._tokenizer = tokenizer
        self._config = config
        self._scheduler = Scheduler(config, pool, runner.max_rows)
        self._engine = EngineLoop(runner, self._scheduler, Sampler(runner.vocab_size), self._publish)
        self._thread = threading.Thread(target=self._engine.run, name="octavo-engine", daemon=True)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._accepting = False
        self._runner_closed = False
        self._open: set[EventStream] = set()  # requests whose end the engine has not announced
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._mean_seconds = 0.0  # of the last few requests, in their lanes

    @property
    def running(self) -> int:
        """Requests that hold a lane."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a lane."""
        return max(0, len(self._open) - self.running)

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
        if self._thread.is_alive():
            self._engine.stop()
            await asyncio.to_thread(self._thread.join)
        if not self._runner_closed:
            self._runner_closed = True
            self._runner.close()

    def submit(self, request: Request) -> EventStream:
        """Queue a request and return its events.

        Raises at once: ContextLengthError, RequestError (a token id out of range), QueueFullError, EngineNotReadyError.
        """
        self._check_ready()
        max_new_tokens = self._check_prompt(request)
        self._check_queue()
        sequence = Sequence(request, max_new_tokens, TokenChooser(request.sampling))
        output = RequestOutput(request, self._tokenizer, max_new_tokens)
        stream = EventStream(lambda: self._engine.abort(sequence))
        self._open.add(stream)
        self._none_open.clear()
        self._engine.submit(Job(sequence, output, stream))
        return stream

    def _check_ready(self) -> None:
        if not self._accepting:
            raise EngineNotReadyError("The server is starting or stopping; send the request again later.")
        if not self._thread.is_alive():
            raise EngineNotReadyError("The engine has stopped after an internal fault; restart the server.")

    def _check_prompt(self, request: Request) -> int:
        """Return how many tokens the request may generate: the context is its end if nothing else is."""
        assert request.prompt and (request.max_tokens is None or request.max_tokens > 0)
        for token in (min(request.prompt), max(request.prompt)):
            if not 0 <= token < self._runner.vocab_size:
                raise RequestError(
                    f"The prompt holds token id {token}; ids of this model are 0 to {self._runner.vocab_size - 1}.",
                    param="prompt",
                )
        room = self.context_length - len(request.prompt)
        if room < 1:
            raise ContextLengthError(len(request.prompt), self.context_length)
        return room if request.max_tokens is None else min(room, request.max_tokens)

    def _check_queue(self) -> None:
        """Count every open request, so that a burst to an idle engine may fill all lanes before one is admitted."""
        if len(self._open) >= self._config.lanes + self._config.max_waiting:
            retry_after = max(1.0, self._mean_seconds / self._config.lanes)  # when the next lane should be free
            raise QueueFullError(self._config.max_waiting, retry_after=retry_after)

    def _publish(self, batch: list[Delivery]) -> None:
        """Called by the engine's thread, once a step. A closed event loop has no readers left."""
        assert self._event_loop is not None
        with suppress(RuntimeError):
            self._event_loop.call_soon_threadsafe(self._deliver, batch)

    def _deliver(self, batch: list[Delivery]) -> None:
        for stream, item in batch:
            stream.deliver(item)
            if not isinstance(item, TextEvent):
                self._open.discard(stream)
            if isinstance(item, FinishEvent) and item.reason is not FinishReason.ABORT:
                self._note_duration(item.timings.prefill_seconds + item.timings.decode_seconds)
        if not self._open:
            self._none_open.set()

    def _note_duration(self, seconds: float) -> None:
        self._mean_seconds = 0.8 * self._mean_seconds + 0.2 * seconds if self._mean_seconds else seconds
