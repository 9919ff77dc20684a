"""What the request bodies of all APIs share: the rules of validation and the sampling fields."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_INT32 = 2**31 - 1


class ProtocolModel(BaseModel):
    """A JSON object of a request: no coercion, an explicit null is the same as absent, unknown keys are left out."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


def _whole_number(value: object) -> object:
    """JSON has one kind of number: clients whose numbers are all floats send 16.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


Int = Annotated[int, BeforeValidator(_whole_number)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
TopK = Annotated[Int, Field(ge=-1, le=MAX_INT32)]
Seed = Annotated[Int, Field(ge=-(2**63), le=2**63 - 1)]
MaxTokens = Annotated[Int, Field(ge=1, le=MAX_INT32)]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]
StopStrings = Annotated[list[StopString], Field(max_length=16), BeforeValidator(_one_or_more)]


class StreamOptions(ProtocolModel):
    include_usage: bool = False


class GenerationBody(ProtocolModel):
    """The fields of every API that generates text."""

    model: str
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    seed: Seed | None = None
    stop: StopStrings = Field(default_factory=list)
    max_tokens: MaxTokens | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError("invalid_value", "needs 'stream': true", {"param": "stream_options"})
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage
