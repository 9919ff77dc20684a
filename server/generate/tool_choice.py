"""The tools that a chat offers and the choice among them, under their present names and under those of before."""

from dataclasses import dataclass

from engine.errors import RequestError
from engine.formats.parts import Tool, ToolChoice
from server.api.chat.body import ChatBody
from server.fields.tools import AllowedToolsChoice, FunctionDefinition, NamedTool

NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be called."""

    tools: tuple[Tool, ...]
    choice: ToolChoice
    legacy: bool  # asked for, and to be answered, as functions and function_call
    parallel: bool

    @property
    def for_template(self) -> list[dict[str, object]]:
        """The tools in the shape that chat templates are written for."""
        return [_described(tool) for tool in self.tools]


def offered_tools(body: ChatBody) -> Offer:
    """Raises RequestError for a choice of what is not there."""
    legacy = bool(body.functions)
    path = "functions" if legacy else "tools"
    definitions = body.functions or [tool.function for tool in body.tools]
    tools = tuple(_tool(definition) for definition in definitions)
    _check_names(tools, path)
    return Offer(tools, _choice(body, tools), legacy, body.parallel_tool_calls and not legacy)


def _tool(definition: FunctionDefinition) -> Tool:
    return Tool(definition.name, definition.parameters or NO_PARAMETERS, definition.description, definition.strict)


def _check_names(tools: tuple[Tool, ...], path: str) -> None:
    seen: set[str] = set()
    for place, tool in enumerate(tools):
        if tool.name in seen:
            param = f"{path}[{place}].function.name" if path == "tools" else f"{path}[{place}].name"
            raise RequestError(f"{param}: there is another tool of the name '{tool.name}'; rename one.", param=param)
        seen.add(tool.name)


def _choice(body: ChatBody, tools: tuple[Tool, ...]) -> ToolChoice:
    names = tuple(tool.name for tool in tools)
    if body.function_call is not None:
        if isinstance(body.function_call, str):
            return ToolChoice(body.function_call, names)
        return _named(body.function_call.name, names, "function_call.name")
    match body.tool_choice:
        case None:
            return ToolChoice("auto" if tools else "none", names)
        case NamedTool(function=function):
            return _named(function.name, names, "tool_choice.function.name")
        case AllowedToolsChoice(allowed_tools=allowed):
            path = "tool_choice.allowed_tools.tools"
            for place, tool in enumerate(allowed.tools):
                _named(tool.function.name, names, f"{path}[{place}].function.name")
            return ToolChoice(allowed.mode, tuple(dict.fromkeys(tool.function.name for tool in allowed.tools)))
        case "required" if not tools:
            raise RequestError(
                "tool_choice: a call is required, but there are no tools; send some.", param="tool_choice"
            )
        case word:
            return ToolChoice(word, names)


def _named(name: str, names: tuple[str, ...], param: str) -> ToolChoice:
    if name not in names:
        raise RequestError(f"{param}: no tool of this name is in the request; name one that is.", param=param)
    return ToolChoice("required", (name,))


def _described(tool: Tool) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
