"""Every error that the engine raises on purpose; each message is one sentence that says what to do.

OctavoError
├── ModelError             a model cannot be found, read or run
│   ├── ModelNotFoundError     no such file, folder or catalogue name
│   ├── ModelFileError         the file is broken or lies about itself
│   └── UnsupportedModelError  a sound file of a kind this version cannot run
├── RequestError           one request asks for what cannot be done (carries the field's name)
│   ├── ContextLengthError     the prompt alone fills the context
│   │   └── InputLengthError       a text to embed is longer than the context
│   └── TemplateError          the chat template refused the messages
├── QueueFullError         the waiting queue is at its limit
├── EngineNotReadyError    the model is still loading, or the server is stopping
│   └── GrammarTimeoutError    the machine did not get a grammar compiled in time
└── EngineFaultError       our own fault while serving one request

Status codes belong to the server: nothing here knows HTTP.
"""

import math


class OctavoError(Exception):
    """Base of all errors whose message a user may read."""


class ModelError(OctavoError):
    """A model cannot be found, read or run."""


class ModelNotFoundError(ModelError):
    """No such file, folder or catalogue name."""


class ModelFileError(ModelError):
    """The model file is broken, truncated, or lies about itself."""


class UnsupportedModelError(ModelError):
    """A sound file of an architecture, weight type or tokenizer that this version cannot run."""


class RequestError(OctavoError):
    """One request asks for what cannot be done."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    """The prompt alone fills the context."""

    def __init__(self, prompt_tokens: int, context_length: int, *, param: str | None = None) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, but this server's context holds {context_length}"
            " and needs room for at least one token of answer; shorten the prompt or raise --ctx.",
            param=param,
            code="context_length_exceeded",
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class InputLengthError(ContextLengthError):
    """A text to embed is longer than the context."""

    def __init__(self, tokens: int, context_length: int, *, param: str) -> None:
        super().__init__(tokens, context_length, param=param)
        self.args = (
            f"{param} has {tokens} tokens, but this server's context holds {context_length};"
            " shorten it or raise --ctx.",
        )


class TemplateError(RequestError):
    """The chat template refused the messages, or took too long or too much."""


class QueueFullError(OctavoError):
    """The waiting queue is at its limit."""

    def __init__(self, limit: int, *, retry_after: float) -> None:
        """`retry_after`: seconds until there should be room."""
        seconds = max(1, math.ceil(retry_after))
        super().__init__(f"The server is busy: {limit} requests are waiting already; try again in about {seconds} s.")
        self.retry_after = retry_after


class EngineNotReadyError(OctavoError):
    """The model is still loading, or the server is stopping."""


class GrammarTimeoutError(EngineNotReadyError):
    """The machine did not get a grammar compiled in time, which tells nothing of the grammar."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The server did not get the grammar compiled in {seconds:g} s of processor time; send the request again"
            " later, or make the grammar simpler."
        )


class EngineFaultError(OctavoError):
    """A fault of ours while serving one request; other requests are untouched."""
