"""The body of POST /v1/completions."""

from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from server.fields.common import MAX_INT32, WHOLE, TokenId, invalid
from server.fields.generation import GenerationBody

TokenIds = Annotated[list[TokenId], Field(min_length=1)]
DEFAULT_MAX_TOKENS = 16  # the default of OpenAI's reference for this API
MAX_PROMPTS = 256


def check_prompt_type(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise PydanticCustomError("invalid_type", "must be a string, an array of strings, or an array of token ids")
    return value


def prompt_kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    first = value[0] if value else None
    if isinstance(first, str):
        return "texts"
    return "token lists" if isinstance(first, list) else "tokens"


def by_path(name: str, value: str | list[str] | list[int] | list[list[int]]) -> list[tuple[str, str | list[int]]]:
    """One prompt or several, each after its path in the body."""
    match value:
        case str():
            return [(name, value)]
        case [int(), *_]:
            return [(name, cast(list[int], value))]
        case several:
            return [(f"{name}[{place}]", cast(str | list[int], one)) for place, one in enumerate(several)]


class CompletionBody(GenerationBody):
    prompt: Annotated[
        Annotated[str, Tag("text")]
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS), Tag("texts")]
        | Annotated[TokenIds, Tag("tokens")]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS), Tag("token lists")],
        Discriminator(prompt_kind),
        BeforeValidator(check_prompt_type),
    ]
    suffix: str = ""
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=MAX_INT32), WHOLE] | None = DEFAULT_MAX_TOKENS
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise invalid("max_tokens", "0 is for scoring a prompt, and needs 'echo': true")
        if self.stream and self.echo and self.logprobs is not None:
            raise invalid("logprobs", "of an echoed prompt cannot be streamed; leave out 'stream'")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many likely tokens to report beside each token; None: no logprobs at all."""
        return self.logprobs

    @property
    def prompts(self) -> list[tuple[str, str | list[int]]]:
        """Each prompt after its path in the body."""
        return by_path("prompt", self.prompt)
