"""The fields that chat completions and text completions share: sampling, the end of the answer, and the answer's form.

The form goes by all the names that clients use.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from server.fields.common import (
    LARGEST_VOCABULARY,
    BadWord,
    Choices,
    Count,
    LogitBias,
    MaxTokens,
    Metadata,
    Milliseconds,
    PriorityFields,
    ProtocolModel,
    StopStrings,
    TokenId,
    invalid,
    with_fields,
)
from server.fields.sampling import SampledBody, sampling_fields

GrammarText = Annotated[str, Field(min_length=1, max_length=1 << 20)]
Pattern = Annotated[str, Field(min_length=1, max_length=1 << 16)]
ChoiceList = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1 << 14)]], Field(min_length=1, max_length=10_000)
]
Schema = dict[str, Any] | bool
SchemaName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class NamedSchema(ProtocolModel):
    name: SchemaName
    description: str = ""
    schema_: Schema = Field(alias="schema")
    strict: bool = False  # the schema is enforced either way


class TextFormat(ProtocolModel):
    type: Literal["text"]


class JsonObjectFormat(ProtocolModel):
    type: Literal["json_object"]
    schema_: Schema | None = Field(None, alias="schema")  # llama-server's spelling of a schema


class JsonSchemaFormat(ProtocolModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema | None = None
    schema_: Schema | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _has_a_schema(self) -> Self:
        if self.json_schema is None and self.schema_ is None:
            raise invalid(
                "response_format.json_schema", "this field is required with a name and a schema", "missing_field"
            )
        return self


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class StructuredOutputs(ProtocolModel):
    json_: Schema | str | None = Field(None, alias="json")
    json_object: bool = False
    regex: Pattern | None = None
    choice: ChoiceList | None = None
    grammar: GrammarText | None = None


class StreamOptions(ProtocolModel):
    include_usage: bool = False


@with_fields(sampling_fields("completions", with_defaults=True))
class SampledRequest(PriorityFields, SampledBody):
    """The first fields of both bodies: the model, the choices, and the sampling numbers."""

    model: str
    n: Choices = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = None


class GenerationBody(SampledRequest):
    """All fields that both bodies share."""

    # which tokens may be chosen
    logit_bias: LogitBias = Field(default_factory=dict)
    allowed_token_ids: list[TokenId] | None = Field(None, min_length=1, max_length=LARGEST_VOCABULARY)
    bad_words: list[BadWord] = Field(default_factory=list, max_length=256)
    # where the answer ends
    stop: StopStrings = Field(default_factory=list)
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=1024)
    include_stop_str_in_output: bool = False
    max_tokens: MaxTokens | None = None
    min_tokens: Count | None = None
    min_new_tokens: Count | None = None  # the same by SGLang's name
    ignore_eos: bool = False
    max_time_ms: Milliseconds | None = None
    t_max_predict_ms: Milliseconds | None = None  # the same by llama-server's name
    # the form of the answer
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: Pattern | None = None
    guided_choice: ChoiceList | None = None
    guided_grammar: GrammarText | None = None
    json_schema: Schema | str | None = None
    regex: Pattern | None = None
    grammar: GrammarText | None = None
    ebnf: GrammarText | None = None
    skip_special_tokens: bool = True
    # what is reported beside the answer
    return_token_ids: bool = False
    cache_report: bool = False  # the timings then tell what the prefix cache gave, and why it gave no more

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "needs 'stream': true")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def fewest_tokens(self) -> int:
        return self.min_new_tokens or 0 if self.min_tokens is None else self.min_tokens

    @property
    def seconds(self) -> float | None:
        """The time that the answer may take; 0 is llama-server's way to set no bound."""
        limit = self.t_max_predict_ms if self.max_time_ms is None else self.max_time_ms
        return limit / 1e3 if limit else None
