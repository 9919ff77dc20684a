"""An engine that plays scripts: the same door as the real one, with text, delays, gates and faults as told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import EngineNotReadyError, OctavoError, QueueFullError, TemplateError
from engine.request import Event, FinishEvent, FinishReason, Request, TextEvent, Timings, Token

# A piece of text is one token; a float is a delay in seconds; an event is waited for; an error ends the stream.
Step = str | float | asyncio.Event | Exception
Script = Sequence[Step] | Callable[[Request], Sequence[Step]]

TIMINGS = Timings(queue_seconds=0.001, prefill_seconds=0.5, decode_seconds=0.25)


class ScriptedStream:
    def __init__(self, on_abort: Callable[[], None]) -> None:
        self._items: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._on_abort = on_abort
        self.ended = False

    def put(self, item: Event | Exception) -> None:
        self._items.put_nowait(item)

    def abort(self) -> None:
        if not self.ended:
            self.ended = True
            self._on_abort()
            self._items.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (item := await self._items.get()) is not None:
            self.ended = not isinstance(item, TextEvent)
            if isinstance(item, Exception):
                raise item
            yield item
            if self.ended:
                return


class ScriptedService:
    """Plays one script for every request, and remembers what it was asked and what was aborted."""

    def __init__(self, script: Script = ("Hello", " world"), *, max_open: int | None = None) -> None:
        self.script = script
        self.max_open = max_open
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self.started = False
        self._playing: dict[ScriptedStream, asyncio.Task[None]] = {}

    @property
    def running(self) -> int:
        return len(self._playing)

    def start(self) -> None:
        self.started = True

    async def stop(self, drain_seconds: float) -> None:
        self.started = False
        if self._playing:
            await asyncio.wait(self._playing.values(), timeout=drain_seconds)
        for stream, task in list(self._playing.items()):
            task.cancel()
            stream.put(EngineNotReadyError("The server is stopping; send the request again later."))

    def submit(self, request: Request) -> ScriptedStream:
        if not self.started:
            raise EngineNotReadyError("The server is starting or stopping; send the request again later.")
        if self.max_open is not None and self.running >= self.max_open:
            raise QueueFullError(self.max_open, retry_after=1.5)
        self.requests.append(request)
        stream = ScriptedStream(lambda: self._abort(request, stream))
        steps = self.script(request) if callable(self.script) else self.script
        task = asyncio.get_running_loop().create_task(_play(request, steps, stream))
        self._playing[stream] = task
        task.add_done_callback(lambda _: self._playing.pop(stream, None))
        return stream

    def _abort(self, request: Request, stream: ScriptedStream) -> None:
        self.aborted.append(request.id)
        if stream in self._playing:
            self._playing[stream].cancel()


async def _play(request: Request, steps: Sequence[Step], stream: ScriptedStream) -> None:
    tokens = 0
    reason = FinishReason.STOP
    for step in steps:
        match step:
            case str() if tokens == request.max_tokens:
                reason = FinishReason.LENGTH
                break
            case str():
                tokens += 1
                stream.put(TextEvent((Token(tokens, step),)))
            case float():
                await asyncio.sleep(step)
            case asyncio.Event():
                await step.wait()
            case Exception():
                stream.put(step)
                return
    prompt_tokens = len(request.prompt)
    stream.put(FinishEvent(reason=reason, prompt_tokens=prompt_tokens, completion_tokens=tokens, timings=TIMINGS))


class ByteTokenizer:
    """A token a byte."""

    def encode_prompt(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_rendered(self, rendered: Any) -> list[int]:
        return self.encode_prompt(str(rendered))


@dataclass
class PlainTemplate:
    """`role: content` a line."""

    calls: list[tuple[list[Mapping[str, object]], Mapping[str, object]]] = field(default_factory=list)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> str:
        self.calls.append((list(messages), extra or {}))
        if any(message["content"] == "refuse me" for message in messages):
            raise TemplateError("The template does not like this.")
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return "".join(lines) + ("assistant: " if add_generation_prompt else "")


@dataclass
class ScriptedModel:
    service: ScriptedService = field(default_factory=ScriptedService)
    template: PlainTemplate | None = field(default_factory=PlainTemplate)
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    id: str = "scripted"
    aliases: tuple[str, ...] = ("gpt-4o",)
    created: int = 1_700_000_000
    context_length: int = 4096
    vocab_size: int = 256
    architecture: str = "llama"
    weight_types: str = "Q4_1 81%, Q8_0 19%"
    file_bytes: int = 98_000_000
    fingerprint: str = "fp_scripted"
    threads: int = 2
    isa: str = "generic"
    lanes: int = 8
    bytes_per_token: int = 90_000_000


def scripted_model(*steps: Step) -> ScriptedModel:
    return ScriptedModel(ScriptedService(steps))


class LoadFailure(OctavoError):
    """What a scripted load fails with."""
