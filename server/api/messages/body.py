"""The bodies of POST /v1/messages and POST /v1/messages/count_tokens, and what becomes of every parameter we know."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from server.fields.common import (
    MAX_INT32,
    WHOLE,
    MaxTokens,
    PriorityFields,
    ProtocolModel,
    StopString,
    TemplateArguments,
    refusing_media,
    with_fields,
)
from server.fields.parameters import Body, given_keys, honoured, ignored, objects_of, refused, table_of, unknown_subkeys
from server.fields.sampling import SampledBody, sampling_fields, sampling_keys
from server.fields.tools import MAX_TOOLS, FunctionName

FOREIGN_BLOCKS = frozenset(
    {
        *("image", "document", "search_result", "container_upload", "server_tool_use", "compaction"),
        *("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result", "tool_reference"),
        *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
    }
)


class TextBlock(ProtocolModel):
    type: Literal["text"]
    text: str


class ThinkingBlock(ProtocolModel):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(ProtocolModel):
    type: Literal["redacted_thinking"]
    data: str = ""


class ToolUseBlock(ProtocolModel):
    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any] = Field(default_factory=dict)


_no_foreign_block = refusing_media(FOREIGN_BLOCKS, "block")


def _string_is_one_block(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise PydanticCustomError("invalid_type", "must be a string or an array of content blocks")
    return content


OnlyText = Annotated[TextBlock, BeforeValidator(_no_foreign_block)]
TextList = Annotated[list[OnlyText], Field(max_length=4096)]
Texts = Annotated[TextList, BeforeValidator(_string_is_one_block, json_schema_input_type=str | TextList)]


class ToolResultBlock(ProtocolModel):
    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: Texts = Field(default_factory=list)
    is_error: bool = False


AnyUserBlock = TextBlock | ToolResultBlock
AnyAssistantBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock
UserBlock = Annotated[AnyUserBlock, Field(discriminator="type"), BeforeValidator(_no_foreign_block)]
AssistantBlock = Annotated[AnyAssistantBlock, Field(discriminator="type"), BeforeValidator(_no_foreign_block)]
BLOCK_KEYS = frozenset(key for kind in get_args(AnyUserBlock | AnyAssistantBlock) for key in kind.model_fields)


UserBlocks = Annotated[list[UserBlock], Field(max_length=4096)]
AssistantBlocks = Annotated[list[AssistantBlock], Field(max_length=4096)]


class UserTurn(ProtocolModel):
    role: Literal["user"]
    content: Annotated[UserBlocks, BeforeValidator(_string_is_one_block, json_schema_input_type=str | UserBlocks)]


class AssistantTurn(ProtocolModel):
    role: Literal["assistant"]
    content: Annotated[
        AssistantBlocks, BeforeValidator(_string_is_one_block, json_schema_input_type=str | AssistantBlocks)
    ]


class SystemTurn(ProtocolModel):
    role: Literal["system"]
    content: Texts


Message = Annotated[UserTurn | AssistantTurn | SystemTurn, Field(discriminator="role")]


def _client_tool(tool: Any) -> Any:
    kind = tool.get("type", "custom") if isinstance(tool, dict) else "custom"
    if kind not in ("custom", None):
        message = (
            "this server runs no tools of its own, so there is no '{type}'; only your own (custom) tools are taken"
        )
        raise PydanticCustomError("unsupported_value", message, {"type": str(kind)[:64]})
    return tool


class ClientTool(ProtocolModel):
    name: FunctionName
    description: str = ""
    input_schema: dict[str, Any]
    strict: bool = False


class AutoChoice(ProtocolModel):
    type: Literal["auto"]
    disable_parallel_tool_use: bool = False


class AnyChoice(ProtocolModel):
    type: Literal["any"]
    disable_parallel_tool_use: bool = False


class NamedChoice(ProtocolModel):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class NoChoice(ProtocolModel):
    type: Literal["none"]


class ThinkingOn(ProtocolModel):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1, le=MAX_INT32), WHOLE]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(ProtocolModel):
    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingOff(ProtocolModel):
    type: Literal["disabled"]


class OutputFormat(ProtocolModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(ProtocolModel):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class PromptBody(ProtocolModel):
    """What decides the prompt: all that count_tokens reads."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=16384)]
    system: Texts = Field(default_factory=list)
    tools: Annotated[list[Annotated[ClientTool, BeforeValidator(_client_tool)]], Field(max_length=MAX_TOOLS)] = Field(
        default_factory=list
    )
    tool_choice: Annotated[
        AutoChoice | AnyChoice | NamedChoice | NoChoice | None, Field(default=None, discriminator="type")
    ]
    thinking: Annotated[ThinkingOn | ThinkingAdaptive | ThinkingOff | None, Field(default=None, discriminator="type")]
    output_config: OutputConfig | None = None
    chat_template_kwargs: TemplateArguments = Field(default_factory=dict)

    @property
    def hides_thinking(self) -> bool:
        """Whether thinking blocks are to come without their text."""
        return isinstance(self.thinking, ThinkingOn | ThinkingAdaptive) and self.thinking.display == "omitted"


@with_fields(sampling_fields("messages"))
class MessagesBody(PromptBody, PriorityFields, SampledBody):
    max_tokens: MaxTokens
    stop_sequences: Annotated[list[StopString], Field(max_length=16)] = Field(default_factory=list)
    stream: bool = False


TOOL_KEYS = frozenset({"name", "description", "input_schema", "strict", "type"})
MESSAGE_KEYS = frozenset({"role", "content"})

PROMPT = [
    *honoured("model", "messages", "system", "tools", "tool_choice", "thinking", "thinking.type"),
    *honoured("thinking.budget_tokens", "thinking.display", "chat_template_kwargs"),
    *honoured("output_config", "output_config.effort", "output_config.format"),
    *ignored("cache_control", "speed", "user_profile_id", "workspace_id", "diagnostics", "output_config.task_budget"),
    # Edits shorten a history: without them the model reads the whole of it.
    *ignored("context_management", neutral=({}, {"edits": []})),
    refused("mcp_servers", []),
    refused("output_format"),
]
GENERATION = [
    *honoured("max_tokens", "stop_sequences", "stream", *sampling_keys("messages")),
    *honoured("priority", "cache_salt", "cache_prompt"),
    *ignored("metadata", "service_tier", "inference_geo"),
    refused("container"),
    refused("thread"),  # ignored, it would leave the model without the conversation so far
]

COUNT_PARAMETERS = table_of(*PROMPT)
MESSAGES_PARAMETERS = table_of(*PROMPT, *GENERATION)


def unread_keys(body: Body) -> list[str]:
    """What is inside messages and tools and has no effect."""
    messages = objects_of(body.get("messages"))
    blocks = [block for message in messages for block in objects_of(message.get("content"))]
    within = [block for one in blocks for block in objects_of(one.get("content"))]
    redacted = [block for block in blocks if block.get("type") == "redacted_thinking"]
    return [
        *unknown_subkeys(body, MESSAGES_PARAMETERS),
        *(f"messages[].{key}" for key in given_keys(messages) if key not in MESSAGE_KEYS),
        *(f"messages[].content[].{key}" for key in given_keys([*blocks, *within]) if key not in BLOCK_KEYS),
        *(f"system[].{key}" for key in given_keys(objects_of(body.get("system"))) if key not in BLOCK_KEYS),
        *(["messages[].content[].data"] if redacted else []),
        *(f"tools[].{key}" for key in given_keys(objects_of(body.get("tools"))) if key not in TOOL_KEYS),
    ]
