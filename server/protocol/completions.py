"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from server.protocol.common import MAX_INT32, GenerationBody, Int, MaxTokens

TokenId = Annotated[Int, Field(ge=0, le=MAX_INT32)]
TokenIds = Annotated[list[TokenId], Field(min_length=1)]
DEFAULT_MAX_TOKENS = 16  # the default of OpenAI's reference for this API


def _one_prompt(value: Any) -> Any:
    """Unpack a list of one prompt: the API also takes several, as strings or as lists of token ids."""
    if not isinstance(value, str | list):
        raise PydanticCustomError("invalid_type", "must be a string or an array of token ids")
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise PydanticCustomError("unsupported_value", "takes one prompt a request; send one request for each")
        return value[0]
    return value


def _kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "tokens"


class CompletionBody(GenerationBody):
    prompt: Annotated[
        Annotated[str, Tag("text")] | Annotated[TokenIds, Tag("tokens")],
        Discriminator(_kind),
        BeforeValidator(_one_prompt),
    ]
    max_tokens: MaxTokens | None = DEFAULT_MAX_TOKENS
