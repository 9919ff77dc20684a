"""The seam between server and engine: the parts of engine.model.ServedModel that the server uses, as protocols.

Only what the tests' scripted engine plays in its own way is a protocol; everything else is the engine's own type.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.api.constraint import Constraint
from engine.api.prompt import Prompt
from engine.api.request import Event, Request, TextEvent
from engine.api.sampling import Sampling
from engine.run.status import EngineStatus, StepReport
from engine.text.formats.answer_format import AnswerFormat
from engine.text.tokenizer import RenderedChat, Tokenizer
from engine.weights.files.weights_file import WeightBytes


class EventStream(Protocol):
    """The events of one submitted request; ends after its FinishEvent."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def listen(self, listener: Callable[[TextEvent], bool]) -> None: ...

    def abort(self) -> None: ...


class Embeddings(Protocol):
    """The vectors of several texts, on their way."""

    async def vectors(self) -> list[NDArray[np.float32]]: ...

    def abort(self) -> None: ...


class Service(Protocol):
    """The engine's door."""

    def start(self) -> None: ...

    async def stop(self, drain_seconds: float) -> None: ...

    def check_room(self, count: int) -> None: ...

    def submit(self, *requests: Request) -> Sequence[EventStream]: ...

    def embed(
        self,
        name: str,
        prompts: Sequence[Prompt],
        *,
        priority: int = 0,
        caller: bytes = b"",
        cache_salt: str = "",
    ) -> Embeddings: ...

    def status(self) -> EngineStatus: ...

    @property
    def observers(self) -> list[Callable[[StepReport], None]]: ...


class ChatTemplate(Protocol):
    """Messages to a prompt."""

    @property
    def source(self) -> str: ...

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> RenderedChat: ...


class ConstraintCompiler(Protocol):
    """Grammars to what limits an answer's tokens; blocking, and safe from any thread."""

    def compile(self, grammar: str, *, param: str) -> Constraint: ...


class ServedModel(Protocol):
    """A loaded model with its engine."""

    @property
    def id(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...
    @property
    def created(self) -> int: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def template(self) -> ChatTemplate | None: ...
    @property
    def format(self) -> AnswerFormat: ...
    @property
    def constraints(self) -> ConstraintCompiler: ...
    @property
    def context_length(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def embedding_size(self) -> int: ...
    @property
    def architecture(self) -> str: ...
    @property
    def weight_types(self) -> str: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def service(self) -> Service: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def lanes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    @property
    def bytes_per_token(self) -> int: ...
    @property
    def weights(self) -> WeightBytes: ...
    @property
    def sampling(self) -> Sampling: ...

    def measure_bandwidth(self) -> float: ...
