"""The body and the answer of POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from server.fields.common import MAX_INT32, WHOLE, Answer, CacheSalt, Priority, ProtocolModel
from server.fields.completions import TokenIds, by_path, check_prompt_type, prompt_kind

MAX_TEXTS = 2048  # OpenAI's own limit

Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(ProtocolModel):
    model: str
    input: Annotated[
        Annotated[Text, Tag("text")]
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS), Tag("texts")]
        | Annotated[TokenIds, Tag("tokens")]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_TEXTS), Tag("token lists")],
        Discriminator(prompt_kind),
        BeforeValidator(check_prompt_type),
    ]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=MAX_INT32), WHOLE] | None = None
    add_special_tokens: bool = True
    priority: Priority = 0
    cache_salt: CacheSalt | None = None

    @property
    def texts(self) -> list[tuple[str, str | list[int]]]:
        """Each text after its path in the body."""
        return by_path("input", self.input)


class Embedding(Answer):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str  # as base64: the float32 values, little-endian


class EmbeddingUsage(Answer):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Answer):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
