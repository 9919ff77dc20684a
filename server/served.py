"""What the server asks of the engine: the parts of engine.model.ServedModel that it uses, as protocols."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from engine.request import Event, Request


class EventStream(Protocol):
    """The events of one submitted request; ends after its FinishEvent."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def abort(self) -> None: ...


class Service(Protocol):
    """The engine's door."""

    def start(self) -> None: ...

    async def stop(self, drain_seconds: float) -> None: ...

    def submit(self, request: Request) -> EventStream: ...


class Tokenizer(Protocol):
    """Text to token ids. What a template renders is opaque here: it goes from the one to the other."""

    def encode_prompt(self, text: str) -> list[int]: ...

    def encode_rendered(self, rendered: Any) -> list[int]: ...


class ChatTemplate(Protocol):
    """Messages to a prompt."""

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] = ...,
    ) -> Any: ...


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
    def context_length(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
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
    def bytes_per_token(self) -> int: ...
