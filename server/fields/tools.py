"""The tools of a chat completion, and the choice among them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from server.fields.common import ProtocolModel

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
MAX_TOOLS = 512


class FunctionDefinition(ProtocolModel):
    name: FunctionName
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool = False


def _functions_only(tool: Any) -> Any:
    if isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] != "function":
        message = "this server has no tools of type '{type}'; describe it as a function"
        raise PydanticCustomError("unsupported_value", message, {"type": tool["type"]})
    return tool


class FunctionTool(ProtocolModel):
    type: Literal["function"]
    function: FunctionDefinition


AnyTool = Annotated[FunctionTool, BeforeValidator(_functions_only)]


class NamedFunction(ProtocolModel):
    name: str


class NamedTool(ProtocolModel):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(ProtocolModel):
    mode: Literal["auto", "required"]
    tools: Annotated[list[Annotated[NamedTool, BeforeValidator(_functions_only)]], Field(min_length=1, max_length=512)]


class AllowedToolsChoice(ProtocolModel):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _kind(choice: Any) -> str | None:
    if isinstance(choice, str):
        return "word"
    kind = choice.get("type") if isinstance(choice, dict) else getattr(choice, "type", None)
    return "allowed" if kind == "allowed_tools" else "named"


AnyToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[NamedTool, BeforeValidator(_functions_only), Tag("named")]
    | Annotated[AllowedToolsChoice, Tag("allowed")],
    Discriminator(_kind),
]
# The names of functions and function_call, which tools and tool_choice replaced.
AnyFunctionCall = Annotated[
    Annotated[Literal["none", "auto"], Tag("word")] | Annotated[NamedFunction, Tag("named")], Discriminator(_kind)
]
