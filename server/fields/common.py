"""The base of all request bodies, the types of their numbers and strings, and the fields of priority and cache."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

MAX_INT32 = 2**31 - 1
Model = TypeVar("Model", bound=BaseModel)
LARGEST_VOCABULARY = 300_000  # entries of a list or map of token ids


class LazyModel(BaseModel):
    """A JSON object whose validator is built at its first use: the validators of all types take a third of a start.

    cli/run_server.py has the validators of requests built once the model is ready.
    """

    model_config = ConfigDict(defer_build=True)


class ProtocolModel(LazyModel):
    """A JSON object of a request: no coercion, an explicit null is the same as absent, unknown keys are left out."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class Answer(LazyModel):
    """A JSON object of an answer; what is described is all that it holds."""

    model_config = ConfigDict(extra="forbid")


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Decorates a model's class: it gets these fields, as pydantic's create_model takes them, after its own."""

    def extended(model: type[Model]) -> type[Model]:
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **dict(fields)
        )

    return extended


def refusing_media(types: frozenset[str], what: str = "part") -> Callable[[Any], Any]:
    """A validator of contents that refuses these types by name: what is dropped would change the answer."""

    def text_only(part: Any) -> Any:
        if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in types:
            message = "this model reads text only, and will not drop a {what} of type '{type}'"
            raise PydanticCustomError("unsupported_value", message, {"type": part["type"], "what": what})
        return part

    return text_only


def string_as_part(kind: str) -> Callable[[Any], Any]:
    """A validator of contents: a string is one text part, of the type `kind`."""

    def parts(content: Any) -> Any:
        if isinstance(content, str):
            return [{"type": kind, "text": content}]
        if not isinstance(content, list):
            raise PydanticCustomError("invalid_type", "must be a string or an array of content parts")
        return content

    return parts


def keys_of(*models: type[BaseModel]) -> frozenset[str]:
    """The names that the fields of these types have in JSON."""
    return frozenset(field.alias or name for model in models for name, field in model.model_fields.items())


def invalid(param: str, message: str, kind: str = "invalid_value") -> PydanticCustomError:
    """The error that a validator raises about another field than its own."""
    return PydanticCustomError(kind, message.replace("{", "{{"), {"param": param})


def _whole_number(value: object) -> object:
    """JSON has one kind of number: clients whose numbers are all floats send 16.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _numeric_key(key: object) -> object:
    if not isinstance(key, str) or re.fullmatch(r"[0-9]{1,10}", key, flags=re.ASCII) is None:
        raise PydanticCustomError("invalid_value", "must have token ids for keys, as in '50256'")
    return int(key)


# WHOLE is the last annotation of an integer: the OpenAPI document then has the bounds of the integer too.
WHOLE = BeforeValidator(_whole_number)
Choices = Annotated[int, Field(ge=1, le=1024), WHOLE]  # a bound before any loop; the server's own is checked later
MaxTokens = Annotated[int, Field(ge=1, le=MAX_INT32), WHOLE]
Count = Annotated[int, Field(ge=0, le=MAX_INT32), WHOLE]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_INT32), WHOLE]
TokenId = Annotated[int, Field(ge=0, le=MAX_INT32), WHOLE]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]
StopList = Annotated[list[StopString], Field(max_length=16)]
StopStrings = Annotated[StopList, BeforeValidator(_one_or_more, json_schema_input_type=StopString | StopList)]
BadWord = Annotated[str, Field(min_length=1, max_length=256)]
WrittenToken = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
BiasedToken = Annotated[int, BeforeValidator(_numeric_key, json_schema_input_type=WrittenToken)]
Bias = Annotated[float, Field(ge=-100, le=100)]
LogitBias = Annotated[
    dict[BiasedToken, Bias],
    Field(max_length=LARGEST_VOCABULARY, json_schema_extra={"additionalProperties": False}),
]
TemplateArguments = Annotated[dict[str, str | int | float | bool | None], Field(max_length=16)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


Priority = Annotated[int, Field(ge=-1000, le=1000), WHOLE]
CacheSalt = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")]  # as vLLM has it


class PriorityFields(ProtocolModel):
    """The turn of a request among others, and its part of the prefix cache."""

    priority: Priority = 0  # a lower number is served earlier
    cache_salt: CacheSalt | None = None  # only requests with the same salt share the prefix cache
    cache_prompt: bool = True  # false: the whole prompt is computed, and no other request can use it

    @property
    def stated_priority(self) -> dict[str, object]:
        """These fields, as far as the request states them."""
        return self.model_dump(include=set(PriorityFields.model_fields), exclude_unset=True)
