"""The fields that fix the form of an answer, by all the names that clients use."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from server.fields.common import ProtocolModel, invalid

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
