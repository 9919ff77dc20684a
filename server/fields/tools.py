"""The tools of a chat completion, and the choice among them.

A client sends what it has: functions, custom tools whose input is one text, tools that its provider would run, and
schemas that some generator wrote. A body is refused only where a tool has no name that a model could call.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from server.fields.common import ProtocolModel

# The longest of the providers' limits. Servers of MCP put dots, colons and slashes into names.
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
MAX_TOOLS = 512
_CHOICES = {"any": "required"}  # what other providers call it


class FunctionDefinition(ProtocolModel):
    name: FunctionName
    description: str = ""
    parameters: Any = None  # a JSON schema; a malformed one frees the arguments
    strict: bool = False


class FunctionTool(ProtocolModel):
    type: Literal["function"] = "function"
    function: FunctionDefinition


class TextGrammar(ProtocolModel):
    syntax: Literal["lark", "regex"]
    definition: str


class TextFormat(ProtocolModel):
    """What the input of a custom tool looks like. Chats nest the grammar, responses do not."""

    type: Literal["text", "grammar"] = "text"
    grammar: TextGrammar | None = None
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None

    @property
    def rules(self) -> TextGrammar | None:
        """The grammar, wherever it stands; None for any text."""
        if self.grammar is None and self.syntax is not None and self.definition is not None:
            return TextGrammar(syntax=self.syntax, definition=self.definition)
        return self.grammar


class CustomDefinition(ProtocolModel):
    name: FunctionName
    description: str = ""
    format: TextFormat = Field(default_factory=TextFormat)


class CustomTool(ProtocolModel):
    """A tool with one text argument."""

    type: Literal["custom"]
    custom: CustomDefinition


class HostedTool(ProtocolModel):
    """A tool that its provider would run, and this server does not: web_search, computer and others."""

    type: str


def _nested(tool: Any) -> Any:
    """A tool in the shape of chats: in that of responses, what describes the tool stands beside its type."""
    if not isinstance(tool, dict):
        return tool
    kind = _kind_of_tool(tool)
    if kind not in ("function", "custom") or kind in tool or "name" not in tool:
        return tool
    return {"type": kind, kind: {key: value for key, value in tool.items() if key != "type"}}


def offered_tools(tools: object) -> list[dict[str, object]]:
    """Those of a body's tools that are read key by key, in the shape of chats; hosted ones are named as a whole."""
    nested = [_nested(tool) for tool in tools] if isinstance(tools, list) else []
    return [tool for tool in nested if isinstance(tool, dict) and _tag_of_tool(tool) != "hosted"]


def _kind_of_tool(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return kind if kind == "custom" or (isinstance(kind, str) and kind != "function") else "function"


def _tag_of_tool(tool: Any) -> str:
    kind = _kind_of_tool(tool)
    return kind if kind in ("function", "custom") else "hosted"


AnyTool = Annotated[
    Annotated[FunctionTool, BeforeValidator(_nested), Tag("function")]
    | Annotated[CustomTool, BeforeValidator(_nested), Tag("custom")]
    | Annotated[HostedTool, Tag("hosted")],
    Discriminator(_tag_of_tool),
]


class NamedFunction(ProtocolModel):
    name: str


class NamedTool(ProtocolModel):
    type: Literal["function"] = "function"
    function: NamedFunction

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomTool(ProtocolModel):
    type: Literal["custom"]
    custom: NamedFunction

    @property
    def name(self) -> str:
        return self.custom.name


AnyNamedTool = Annotated[
    Annotated[NamedTool, BeforeValidator(_nested), Tag("function")]
    | Annotated[NamedCustomTool, BeforeValidator(_nested), Tag("custom")]
    | Annotated[HostedTool, Tag("hosted")],
    Discriminator(_tag_of_tool),
]


class AllowedTools(ProtocolModel):
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[AnyNamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


class AllowedToolsChoice(ProtocolModel):
    """Some of the tools. Responses have the mode and the list beside the type."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _word(choice: Any) -> Any:
    """A choice that another API writes in its own way; {"type": "auto"} is Anthropic's."""
    if isinstance(choice, dict) and choice.keys() == {"type"} and choice["type"] in ("none", "auto", "any", "required"):
        choice = choice["type"]
    return _CHOICES.get(choice, choice) if isinstance(choice, str) else choice


def _nested_allowed(choice: Any) -> Any:
    if isinstance(choice, dict) and "allowed_tools" not in choice and "tools" in choice:
        return {"type": choice.get("type"), "allowed_tools": choice}
    return choice


def _kind(choice: Any) -> str | None:
    if isinstance(choice, str):
        return "word"
    kind = choice.get("type") if isinstance(choice, dict) else getattr(choice, "type", None)
    return "allowed" if kind == "allowed_tools" else "named"


AnyToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[AnyNamedTool, Tag("named")]
    | Annotated[AllowedToolsChoice, BeforeValidator(_nested_allowed), Tag("allowed")],
    Discriminator(_kind),
    BeforeValidator(_word),
]
# The names of functions and function_call, which tools and tool_choice replaced.
AnyFunctionCall = Annotated[
    Annotated[Literal["none", "auto"], Tag("word")] | Annotated[NamedFunction, Tag("named")], Discriminator(_kind)
]
