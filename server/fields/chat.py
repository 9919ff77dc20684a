"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from server.fields.common import (
    MAX_INT32,
    WHOLE,
    MaxTokens,
    ProtocolModel,
    TemplateArguments,
    invalid,
    keys_of,
    refusing_media,
    string_as_part,
)
from server.fields.generation import GenerationBody
from server.fields.tools import MAX_TOOLS, AnyFunctionCall, AnyTool, AnyToolChoice, FunctionDefinition

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


_text_only = refusing_media(MEDIA_PARTS)
_string_is_one_part = string_as_part("text")

AnyPart = Annotated[TextPart | RefusalPart, Field(discriminator="type"), BeforeValidator(_text_only)]
# One kind of part is a union of one, so that an unknown type is reported alike.
OnlyText = Annotated[TextPart, BeforeValidator(_text_only)]
Texts = Annotated[list[OnlyText], Field(max_length=4096)]
Parts = Annotated[list[AnyPart], Field(max_length=4096)]
Content = Annotated[Texts, BeforeValidator(_string_is_one_part, json_schema_input_type=str | Texts)]
AssistantContent = Annotated[Parts, BeforeValidator(_string_is_one_part, json_schema_input_type=str | Parts)]


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
    function_call: CalledFunction | None = None  # what tool_calls replaced


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
MESSAGE_KEYS = keys_of(*get_args(AnyMessage))
PART_KEYS = keys_of(TextPart, RefusalPart)


class Prediction(ProtocolModel):
    """What the answer will probably say; it comes the sooner for it, and stays the same."""

    type: Literal["content"]
    content: Content

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


class ThinkingSwitch(ProtocolModel):
    type: Literal["enabled", "disabled", "adaptive", "auto"]
    budget_tokens: Annotated[int, Field(ge=0, le=MAX_INT32), WHOLE] | None = None


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1, max_length=16384)]
    max_completion_tokens: MaxTokens | None = None
    prediction: Prediction | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None
    # tools
    tools: list[AnyTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: AnyToolChoice | None = None
    parallel_tool_calls: bool = True
    functions: list[FunctionDefinition] = Field(default_factory=list, max_length=MAX_TOOLS)
    function_call: AnyFunctionCall | None = None
    # thinking
    reasoning_effort: Effort | None = None
    enable_thinking: bool | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    thinking: ThinkingSwitch | None = None
    thinking_token_budget: Annotated[int, Field(ge=-1, le=MAX_INT32), WHOLE] | None = None
    include_reasoning: bool = True
    # how the prompt is made
    chat_template_kwargs: TemplateArguments = Field(default_factory=dict)
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "needs 'logprobs': true")
        if self.continue_final_message and self.add_generation_prompt:
            raise invalid("add_generation_prompt", "excludes continue_final_message")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise invalid("continue_final_message", "needs a last message of the assistant")
        if self.functions and self.tools:
            raise invalid("functions", "were replaced by tools; send only one of the two")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        """How many likely tokens to report beside each token; None: no logprobs at all."""
        return (self.top_logprobs or 0) if self.logprobs else None
