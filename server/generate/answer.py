"""What one answer is made from and made of: the request's context, the plan, and the updates of each choice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from engine.api.prompt import Prompt
from engine.api.request import FinishEvent, Request, Token
from engine.text.formats.parts import Content, Part
from server.generate.message_spans import Spans
from server.served import ServedModel
from server.settings import ServingOptions

Json = dict[str, Any]
Reason = Literal["stop", "length", "tool_calls"]


class Parser(Protocol):
    """What splits one choice's tokens into parts; engine.text.formats.answer_format.AnswerParser is one."""

    def push(self, tokens: Sequence[Token]) -> list[Part]: ...

    def finish(self) -> list[Part]: ...

    @property
    def reasoning_tokens(self) -> int: ...


class PlainParser:
    """All text is content: completions of raw prompts."""

    reasoning_tokens = 0

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        text = ""  # of one token nearly always, where a join takes longer
        for token in tokens:
            text += token.text
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []


@dataclass(frozen=True, slots=True)
class Speed:
    """What the model and the machine would allow."""

    bytes_per_step: int  # that one pass over the weights reads
    bandwidth: float | None = None  # of memory, in bytes a second; None: not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a request finds here: the model that answers, the settings, and the names of answer and caller."""

    id: str  # of the answer: chatcmpl-..., cmpl-..., msg_..., resp_..., embd-...
    model: ServedModel
    options: ServingOptions
    speed: Speed
    caller: str = ""  # scope["octavo.caller"]: a hash of the API key as hexadecimal digits, empty without one

    @property
    def caller_bytes(self) -> bytes:
        """The caller as the engine tells one from the other."""
        return bytes.fromhex(self.caller)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one HTTP request asks of the engine; nothing of it has been admitted yet."""

    id: str  # of the answer: chatcmpl-..., cmpl-..., msg_..., resp_...
    requests: tuple[Request, ...]  # one a choice, prompt-major: the n answers to the first prompt, then to the next
    n: int = 1  # answers to each prompt
    new_parser: Callable[[], Parser] = PlainParser
    notes: tuple[str, ...] = ()  # names of parameters that turned out to have no effect
    message_spans: Spans = ()  # of a chat that wants to know which message the prefix cache missed
    echo: tuple[str, ...] = ()  # the prompts' texts, where a completion repeats them before its own

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Each prompt, once."""
        return tuple(request.prompt for request in self.requests[:: self.n])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How one choice ended."""

    reason: Reason
    event: FinishEvent
    reasoning_tokens: int


class Update(NamedTuple):
    """What is new of one choice. Tokens are all that were generated, in order; their text is in the parts."""

    choice: int
    parts: Sequence[Part]
    tokens: Sequence[Token] = ()
    finish: Finish | None = None  # on the choice's last update
