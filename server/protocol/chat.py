"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from server.protocol.common import GenerationBody, MaxTokens, ProtocolModel

MEDIA_PARTS = frozenset({"image_url", "image", "input_image", "input_audio", "audio_url", "video_url", "file"})


class TextPart(ProtocolModel):
    type: Literal["text"]
    text: str


class RefusalPart(ProtocolModel):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def _text_only(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in MEDIA_PARTS:
        message = "this model reads text only, and will not drop a part of type '{type}'"
        raise PydanticCustomError("unsupported_value", message, {"type": part["type"]})
    return part


def _string_is_one_part(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise PydanticCustomError("invalid_type", "must be a string or an array of content parts")
    return content


AnyPart = Annotated[TextPart | RefusalPart, Field(discriminator="type"), BeforeValidator(_text_only)]
# One kind of part is a union of one, so that an unknown type is reported alike.
OnlyText = Annotated[TextPart, BeforeValidator(_text_only)]
Content = Annotated[list[OnlyText], Field(max_length=4096), BeforeValidator(_string_is_one_part)]
AssistantContent = Annotated[list[AnyPart], Field(max_length=4096), BeforeValidator(_string_is_one_part)]


class InstructionMessage(ProtocolModel):
    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(ProtocolModel):
    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(ProtocolModel):
    name: str
    arguments: Any = "{}"  # a string by the API; some clients send the object itself


class ToolCall(ProtocolModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(ProtocolModel):
    role: Literal["assistant"]
    content: AssistantContent = Field(default_factory=list)
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=1024)


class ToolMessage(ProtocolModel):
    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


class FunctionMessage(ProtocolModel):
    role: Literal["function"]
    content: Content
    name: str


AnyMessage = InstructionMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage
Message = Annotated[AnyMessage, Field(discriminator="role")]
MESSAGE_KEYS = frozenset(key for kind in get_args(AnyMessage) for key in kind.model_fields)
PART_KEYS = frozenset({*TextPart.model_fields, *RefusalPart.model_fields})


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1, max_length=16384)]
    max_completion_tokens: MaxTokens | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, max_length=64)

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
