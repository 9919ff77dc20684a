"""The bodies of POST /v1/responses and POST /v1/responses/input_tokens, and what becomes of every parameter we know."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic_core import PydanticCustomError

from server.fields.chat import Effort
from server.fields.common import (
    WHOLE,
    MaxTokens,
    PriorityFields,
    ProtocolModel,
    TemplateArguments,
    refusing_media,
    string_as_part,
    with_fields,
)
from server.fields.generation import SchemaName
from server.fields.parameters import Body, given_keys, honoured, ignored, objects_of, refused, table_of, unknown_subkeys
from server.fields.sampling import SampledBody, sampling_fields, sampling_keys
from server.fields.tools import MAX_TOOLS, FunctionName

MEDIA_PARTS = frozenset(
    {"input_image", "input_file", "input_audio", "input_video", "output_audio", "computer_screenshot"}
)
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class InputText(ProtocolModel):
    type: Literal["input_text"]
    text: str


class OutputText(ProtocolModel):
    type: Literal["output_text"]
    text: str


class Refusal(ProtocolModel):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


_no_media = refusing_media(MEDIA_PARTS)
_string_is_one_part = string_as_part("input_text")

AnyPart = InputText | OutputText | Refusal
ContentPart = Annotated[AnyPart, Field(discriminator="type"), BeforeValidator(_no_media)]
Parts = Annotated[list[ContentPart], Field(max_length=4096)]
Contents = Annotated[Parts, BeforeValidator(_string_is_one_part, json_schema_input_type=str | Parts)]


class MessageItem(ProtocolModel):
    type: Literal["message"]
    role: Literal["user", "system", "developer", "assistant"]
    content: Contents
    id: str | None = None
    status: ItemStatus | None = None


class FunctionCall(ProtocolModel):
    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str = "{}"
    id: str | None = None
    status: ItemStatus | None = None


class FunctionCallOutput(ProtocolModel):
    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: Contents
    id: str | None = None
    status: ItemStatus | None = None


class ReasoningText(ProtocolModel):
    type: Literal["reasoning_text"]
    text: str


class SummaryText(ProtocolModel):
    type: Literal["summary_text"]
    text: str


class ReasoningItem(ProtocolModel):
    type: Literal["reasoning"]
    summary: list[SummaryText] = Field(default_factory=list, max_length=4096)
    content: list[ReasoningText] = Field(default_factory=list, max_length=4096)
    id: str | None = None
    status: ItemStatus | None = None


AnyItem = MessageItem | FunctionCall | FunctionCallOutput | ReasoningItem
ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning")
ITEM_KEYS = frozenset(key for kind in get_args(AnyItem) for key in kind.model_fields)
PART_KEYS = frozenset(key for kind in (*get_args(AnyPart), ReasoningText, SummaryText) for key in kind.model_fields)


def _known_item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind is None:
        kind = "item_reference" if "id" in item and "role" not in item else "message"
        item = {**item, "type": kind}
    if isinstance(kind, str) and kind not in ITEM_TYPES:
        message = "this server takes no items of type '{type}', only {known}"
        raise PydanticCustomError("unsupported_value", message, {"type": kind[:64], "known": ", ".join(ITEM_TYPES)})
    return item


def _string_is_one_message(value: Any) -> Any:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_type", "must be a string or an array of items")
    return value


Item = Annotated[AnyItem, Field(discriminator="type"), BeforeValidator(_known_item)]
ItemList = Annotated[list[Item], Field(max_length=16384)]
Items = Annotated[ItemList, BeforeValidator(_string_is_one_message, json_schema_input_type=str | ItemList)]
ITEMS: TypeAdapter[list[AnyItem]] = TypeAdapter(list[Item], config=ConfigDict(defer_build=True))


def _own_tool(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "function":
        message = (
            "this server runs no tools of its own, so there is no '{type}'; only tools of type 'function' are taken"
        )
        raise PydanticCustomError("unsupported_value", message, {"type": kind[:64]})
    return tool


class ResponseTool(ProtocolModel):
    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


ChoiceWord = Literal["none", "auto", "required"]


class PlainChoice(ProtocolModel):
    type: ChoiceWord


class FunctionChoice(ProtocolModel):
    type: Literal["function"]
    name: str


class AllowedFunctions(ProtocolModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionChoice], Field(min_length=1, max_length=1024)]


def _string_is_a_type(choice: Any) -> Any:
    return {"type": choice} if isinstance(choice, str) else choice


Choice = Annotated[PlainChoice | FunctionChoice | AllowedFunctions, Field(discriminator="type")]
ToolChoice = Annotated[Choice, BeforeValidator(_string_is_a_type, json_schema_input_type=ChoiceWord | Choice)]


class PlainFormat(ProtocolModel):
    type: Literal["text", "json_object"]


class SchemaFormat(ProtocolModel):
    type: Literal["json_schema"]
    name: SchemaName
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextConfig(ProtocolModel):
    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] = PlainFormat(type="text")


class ReasoningConfig(ProtocolModel):
    effort: Effort | None = None


class InputBody(ProtocolModel):
    """What decides the prompt: all that input_tokens reads."""

    input: Items = Field(default_factory=list)
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[Annotated[ResponseTool, BeforeValidator(_own_tool)]], Field(max_length=MAX_TOOLS)] = Field(
        default_factory=list
    )
    tool_choice: ToolChoice = PlainChoice(type="auto")
    parallel_tool_calls: bool = True
    reasoning: ReasoningConfig = ReasoningConfig()
    text: TextConfig = TextConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    chat_template_kwargs: TemplateArguments = Field(default_factory=dict)


class CountBody(InputBody):
    model: str | None = None


LOGPROBS = "message.output_text.logprobs"
Includable = Literal[
    "message.output_text.logprobs",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
]
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


@with_fields(sampling_fields("responses"))
class ResponsesBody(InputBody, PriorityFields, SampledBody):
    model: str
    input: Annotated[Items, Field(min_length=1)]
    max_output_tokens: MaxTokens | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] = 0
    include: Annotated[list[Includable], Field(max_length=64)] = Field(default_factory=list)
    store: bool = True
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] = Field(default_factory=dict)
    stream: bool = False

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in self.include or self.top_logprobs > 0


TOOL_KEYS = frozenset({"type", "name", "description", "parameters", "strict"})

PROMPT = [
    *honoured("model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "parallel_tool_calls"),
    *honoured("reasoning", "reasoning.effort", "text", "text.format", "truncation", "chat_template_kwargs"),
    # Reasoning is sent in full, and there is no other text to choose.
    *ignored("reasoning.summary", "reasoning.generate_summary", "reasoning.context", "reasoning.mode"),
    *ignored("text.verbosity", "personality"),
    refused("conversation"),
]
GENERATION = [
    *honoured(
        "max_output_tokens", *sampling_keys("responses"), "top_logprobs", "include", "store", "metadata", "stream"
    ),
    # The last event always tells of the usage.
    *honoured("stream_options", "stream_options.include_usage"),
    *honoured("priority", "cache_salt", "cache_prompt"),
    # Only the tools that a server runs by itself are counted by it, and here are none.
    *ignored("max_tool_calls", "stream_options.include_obfuscation", "service_tier", "user", "safety_identifier"),
    *ignored("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "moderation", "access_programs"),
    *ignored("background_options"),
    refused("background", False),
    refused("prompt"),
    refused("context_management", []),
    refused("image"),
]

COUNT_PARAMETERS = table_of(*PROMPT)
RESPONSES_PARAMETERS = table_of(*PROMPT, *GENERATION)


def unread_keys(body: Body) -> list[str]:
    """What is inside items, tools and lists of wishes and has no effect."""
    items = objects_of(body.get("input"))
    parts = [part for item in items for key in ("content", "output", "summary") for part in objects_of(item.get(key))]
    include = body.get("include")
    return [
        *unknown_subkeys(body, RESPONSES_PARAMETERS),
        *(f"input[].{key}" for key in given_keys(items) if key not in ITEM_KEYS),
        *(f"input[].content[].{key}" for key in given_keys(parts) if key not in PART_KEYS),
        *(f"tools[].{key}" for key in given_keys(objects_of(body.get("tools"))) if key not in TOOL_KEYS),
        *(f"include.{name}" for name in (include if isinstance(include, list) else []) if name != LOGPROBS),
        # What does not fit is an error here, and never cut off.
        *(["truncation"] if body.get("truncation") == "auto" else []),
    ]
