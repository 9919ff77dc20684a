"""An engine that plays scripts: the same door as the real one, with tokens, delays, gates and faults as told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from engine.api.prompt import Prompt
from engine.api.request import Event, FinishEvent, FinishReason, Request, TextEvent, Timings, Token, TokenLogprob
from engine.api.sampling import Sampling
from engine.errors import EngineNotReadyError, OctavoError, QueueFullError, TemplateError
from engine.run.status import EngineStatus, LaneStatus, StepReport
from engine.text.chat_template import ChatTemplate
from engine.text.detokenizer import StopMatcher
from engine.text.formats.answer_format import AnswerFormat, answer_format
from engine.text.tokenizer import RenderedChat, Tokenizer
from engine.text.vocabulary import TokenType, Vocabulary
from engine.weights.files.weights_file import WeightBytes
from tests.server.scripted.cache import ScriptedCache
from tests.server.scripted.compiler import ScriptedCompiler
from tests.server.scripted.embeddings import EMBEDDING_SIZE, ScriptedEmbeddings
from tests.tiny.models import byte_alphabet


@dataclass(frozen=True)
class Mark:
    """The control or tag token of this name; handed out as a mark where the request marks it."""

    name: str


# A piece of text is one token; a float is a delay in seconds; an event is waited for; an error ends the stream.
# A Token is handed out as it is; a reason ends the answer.
Step = str | Mark | Token | float | FinishReason | asyncio.Event | Exception
Script = Sequence[Step] | Callable[[Request], Sequence[Step]]

TIMINGS = Timings(queue_seconds=0.001, prefill_seconds=0.5, decode_seconds=0.25)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VOCAB_SIZE = 1024
# What tells the engine that the model thinks, and that it calls tools as Hermes does.
SOURCE = """{% if tools %}{{ tools }}<tool_call>{"name": }</tool_call>{% endif %}
{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}
{% if enable_thinking is false %}<think></think>{% endif %}"""
PLAIN_SOURCE = "{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}"  # it can neither


class ScriptedTokenizer(Tokenizer):
    """A token a byte, the control tokens and tags, and an id for every longer piece that a script says."""

    def __init__(self) -> None:
        tokens = [*byte_alphabet(), *CONTROL, *TAGS]
        super().__init__(_vocabulary(tokens))
        self._names = {name: tokens.index(name) for name in (*CONTROL, *TAGS)}
        self._pieces: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._first_piece = len(tokens)

    def mark_id(self, name: str) -> int:
        return self._names[name]

    def piece_id(self, piece: str) -> int:
        if len(piece) == 1 and piece.isascii():
            return ord(piece)
        token = self._pieces.setdefault(piece, self._first_piece + len(self._pieces))
        self._texts[token] = piece
        return token

    def token_bytes(self, token: int) -> bytes:
        return super().token_bytes(token) if token < self._first_piece else self.token_text(token).encode()

    def token_text(self, token: int) -> str:
        return super().token_text(token) if token < self._first_piece else self._texts.get(token, f"<unused {token}>")


def _vocabulary(tokens: list[str]) -> Vocabulary:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_token_type(token) for token in tokens],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }
    return Vocabulary.from_metadata(metadata)


def _token_type(token: str) -> int:
    if token in CONTROL:
        return int(TokenType.CONTROL)
    return int(TokenType.USER_DEFINED if token in TAGS else TokenType.NORMAL)


class ScriptedStream:
    def __init__(self, on_abort: Callable[[], None]) -> None:
        self._items: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._on_abort = on_abort
        self._listener: Callable[[TextEvent], bool] | None = None
        self._is_awaited = False
        self.ended = False

    def listen(self, listener: Callable[[TextEvent], bool]) -> None:
        self._listener = listener

    def put(self, item: Event | Exception) -> None:
        if self._listener is not None and self._is_awaited and isinstance(item, TextEvent):
            try:
                if self._listener(item):
                    return
            except Exception as error:
                item = error
        self._is_awaited = False
        self._items.put_nowait(item)

    def abort(self) -> None:
        if not self.ended:
            self.ended = True
            self._on_abort()
            self._items.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (item := await self._next()) is not None:
            self.ended = not isinstance(item, TextEvent)
            if isinstance(item, Exception):
                raise item
            yield item
            if self.ended:
                return

    async def _next(self) -> Event | Exception | None:
        self._is_awaited = self._items.empty()
        return await self._items.get()


class Player:
    """Plays one script for one request: its limits, stop strings and logprobs are obeyed, its grammar is not."""

    def __init__(
        self, request: Request, tokenizer: ScriptedTokenizer, stream: ScriptedStream, cache: ScriptedCache | None
    ) -> None:
        self._request = request
        self._cache_report = None if cache is None else cache.take(request)
        self._tokenizer = tokenizer
        self._stream = stream
        self._stops = StopMatcher(request.stop, include=request.include_stop)
        self._unreported: list[Token] = []
        self._generated = 0
        self._reason: FinishReason | None = None
        self._stop: str | int | None = None

    async def play(self, steps: Sequence[Step]) -> None:
        try:
            await self._play(steps)
        except Exception as error:  # a broken script should fail its test, and not hang it
            self._stream.put(error)

    async def _play(self, steps: Sequence[Step]) -> None:
        for step in () if self._request.max_tokens == 0 else steps:
            match step:
                case float():
                    await asyncio.sleep(step)
                case asyncio.Event():
                    await step.wait()
                case Exception():
                    self._stream.put(step)
                    return
                case FinishReason():
                    self._reason = step
                case _:
                    self._say(step)
            if self._reason is not None:
                break
        self._finish(self._reason or (FinishReason.LENGTH if self._request.max_tokens == 0 else FinishReason.STOP))

    def _say(self, step: str | Mark | Token) -> None:
        self._generated += 1
        match step:
            case str():
                self._say_text(step)
            case Mark():
                self._say_mark(self._tokenizer.mark_id(step.name), step.name)
            case Token():
                self._report(step)
        if self._reason is None and self._generated == self._request.max_tokens:
            self._reason = FinishReason.LENGTH

    def _say_text(self, text: str) -> None:
        safe = self._stops.push(text) if self._request.stop else text
        if self._stops.stopped:
            self._reason = FinishReason.STOP
            self._stop = self._stops.matched
        self._report(self._token(self._tokenizer.piece_id(text), safe))

    def _say_mark(self, token: int, name: str) -> None:
        self._release()
        is_mark = token in self._request.marks
        shown = is_mark or name in TAGS or not self._request.skip_special_tokens
        self._report(self._token(token, name if shown else "", is_mark))

    def _token(self, token: int, text: str, is_mark: bool = False) -> Token:
        count = self._request.logprobs
        return Token(token, text, is_mark, None if count is None else _logprob(token, count))

    def _report(self, token: Token) -> None:
        self._unreported.append(token)
        if token.text and not self._stops.is_holding:
            self._flush()

    def _release(self) -> None:
        """The text that was held back in case it became a stop string goes with the last token that held it."""
        rest = self._stops.flush()
        if rest:
            self._unreported[-1] = replace(self._unreported[-1], text=self._unreported[-1].text + rest)

    def _flush(self) -> None:
        if self._unreported:
            self._stream.put(TextEvent(tuple(self._unreported)))
            self._unreported = []

    def _finish(self, reason: FinishReason) -> None:
        self._release()
        self._flush()
        prompt = self._request.prompt
        count = self._request.prompt_logprobs
        cache = self._cache_report
        self._stream.put(
            FinishEvent(
                reason=reason,
                prompt_tokens=len(prompt),
                completion_tokens=self._generated,
                timings=TIMINGS,
                cached_tokens=0 if cache is None else cache.cached_tokens,
                cache=cache if self._request.explains_cache else None,
                stop=self._stop,
                prompt_logprobs=() if count is None else (None, *(_logprob(token, count) for token in prompt[1:])),
            )
        )


def _logprob(token: int, count: int) -> TokenLogprob:
    """A figure made of the id: the token itself is the likeliest, and the others follow."""
    first = -(token % 7 + 1) / 8
    others = [(other, first - 0.5 * (other + 1)) for other in range(count) if other != token]
    return TokenLogprob(token, first, ((token, first), *others)[:count])


class ScriptedService:
    """Plays one script for every request, and remembers what it was asked and what was aborted."""

    def __init__(self, script: Script = ("Hello", " world"), *, max_open: int | None = None) -> None:
        self.script = script
        self.max_open = max_open
        self.cache: ScriptedCache | None = None
        self.condition: EngineStatus | None = None  # what it tells of itself; None: the truth
        self.tokenizer = ScriptedTokenizer()
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self.embedded: list[tuple[int, ...]] = []
        self.embeddings: list[ScriptedEmbeddings] = []
        self.embedding_terms: tuple[int, bytes, str] | None = None  # priority, caller and salt of the last
        self.embedding_gate: asyncio.Event | None = None  # what embeddings wait for
        self.embedding_fault: Exception | None = None  # what they end with
        self.observers: list[Callable[[StepReport], None]] = []
        self.started = False
        self._playing: dict[ScriptedStream, tuple[Request, asyncio.Task[None]]] = {}

    @property
    def running(self) -> int:
        return len(self._playing)

    def status(self) -> EngineStatus:
        if self.condition is not None:
            return self.condition
        lanes = [
            LaneStatus(one.id, len(one.prompt), len(one.prompt), 0, caller=one.caller)
            for one, _ in self._playing.values()
        ]
        return EngineStatus(lanes=8, running=tuple(lanes), waiting=0, blocks=100, free_blocks=100 - len(lanes))

    def start(self) -> None:
        self.started = True

    async def stop(self, drain_seconds: float) -> None:
        self.started = False
        if self._playing:
            await asyncio.wait([task for _, task in self._playing.values()], timeout=drain_seconds)
        for stream, (_, task) in list(self._playing.items()):
            task.cancel()
            stream.put(EngineNotReadyError("The server is stopping; send the request again later."))

    def check_room(self, count: int) -> None:
        if self.max_open is not None and self.running + count > self.max_open:
            raise QueueFullError(self.max_open, retry_after=1.5)

    def submit(self, *requests: Request) -> list[ScriptedStream]:
        if not self.started:
            raise EngineNotReadyError("The server is starting or stopping; send the request again later.")
        self.check_room(len(requests))
        self.requests += requests
        return [self._play(request) for request in requests]

    def embed(
        self,
        name: str,
        prompts: Sequence[Prompt],
        *,
        priority: int = 0,
        caller: bytes = b"",
        cache_salt: str = "",
    ) -> ScriptedEmbeddings:
        if self.max_open == 0:
            raise QueueFullError(0, retry_after=1.5)
        self.embedding_terms = (priority, caller, cache_salt)
        self.embeddings.append(ScriptedEmbeddings(prompts, self.embedding_gate, self.embedding_fault))
        self.embedded += [prompt.tokens for prompt in prompts]
        return self.embeddings[-1]

    def _play(self, request: Request) -> ScriptedStream:
        stream = ScriptedStream(lambda: self._abort(request, stream))
        steps = self.script(request) if callable(self.script) else self.script
        player = Player(request, self.tokenizer, stream, self.cache)
        task = asyncio.get_running_loop().create_task(player.play(steps))
        self._playing[stream] = (request, task)
        task.add_done_callback(lambda _: self._playing.pop(stream, None))
        return stream

    def _abort(self, request: Request, stream: ScriptedStream) -> None:
        self.aborted.append(request.id)
        if stream in self._playing:
            self._playing[stream][1].cancel()


@dataclass
class PlainTemplate:
    """`role: content` a line. What its `source` says decides how answers are read, as a real template's does."""

    source: str = SOURCE
    calls: list[tuple[list[Mapping[str, object]], Mapping[str, object]]] = field(default_factory=list)
    tools: list[Sequence[Mapping[str, object]] | None] = field(default_factory=list)
    opening: str = ""  # what follows the assistant's name: "<think>\n" where thinking has begun already

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        extra = extra or {}
        self.calls.append((list(messages), extra))
        self.tools.append(tools)
        if any(message["content"] == "refuse me" for message in messages):
            raise TemplateError("The template does not like this.")
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        opening = "" if extra.get("enable_thinking") is False else self.opening
        return RenderedChat("".join(lines) + (f"assistant: {opening}" if add_generation_prompt else ""), "\ufdd0")


@dataclass
class ScriptedModel:
    service: ScriptedService = field(default_factory=ScriptedService)
    template: PlainTemplate | ChatTemplate | None = field(default_factory=PlainTemplate)
    constraints: ScriptedCompiler = field(default_factory=ScriptedCompiler)
    id: str = "scripted"
    aliases: tuple[str, ...] = ("gpt-4o",)
    created: int = 1_700_000_000
    context_length: int = 4096
    vocab_size: int = VOCAB_SIZE
    embedding_size: int = EMBEDDING_SIZE
    architecture: str = "llama"
    sampling: Sampling = field(default_factory=Sampling)
    weight_types: str = "Q4_1 81%, Q8_0 19%"
    file_bytes: int = 98_000_000
    fingerprint: str = "fp_scripted"
    threads: int = 2
    isa: str = "generic"
    lanes: int = 8
    kv_bytes: int = 1_500_000_000
    weights: WeightBytes = field(default_factory=lambda: WeightBytes(90_000_000))

    @property
    def bytes_per_token(self) -> int:
        return self.weights.dense

    def measure_bandwidth(self) -> float:
        return 18e9

    @property
    def tokenizer(self) -> ScriptedTokenizer:
        return self.service.tokenizer

    @cached_property
    def format(self) -> AnswerFormat:
        return answer_format(None if self.template is None else self.template.source, self.tokenizer)


def templated_model(source: str, *steps: Step) -> ScriptedModel:
    """A model with a real chat template."""
    service = ScriptedService(steps)
    tokenizer = service.tokenizer
    template = ChatTemplate(
        source,
        bos_token="",
        eos_token="<|im_end|>",
        control_tokens=tokenizer.control_tokens,
        user_tokens=tokenizer.user_tokens,
    )
    return ScriptedModel(service, template)


def prompt_text(request: Request) -> str:
    """The prompt that a request came with; control tokens and tags leave nothing."""
    return bytes(token for token in request.prompt if token < 256).decode()


def scripted_model(*steps: Step) -> ScriptedModel:
    return ScriptedModel(ScriptedService(steps))


class LoadFailure(OctavoError):
    """What a scripted load fails with."""
