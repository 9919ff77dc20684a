"""The tools that a chat offers, and the choice among them, whatever shape they were sent in.

What this server cannot offer is left out and named. Only a choice that forces such a tool is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import RequestError
from engine.text.constraints.readings import read_as_meant
from engine.text.formats.parts import INPUT, TextInput, Tool, ToolChoice
from server.fields.chat import ChatBody
from server.fields.tools import (
    AllowedToolsChoice,
    AnyNamedTool,
    CustomDefinition,
    CustomTool,
    FunctionDefinition,
    FunctionTool,
    HostedTool,
)

NO_PARAMETERS = {"type": "object", "properties": {}}
ONE_TEXT = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
_SYNTAXES = {"lark": "Lark grammar", "regex": "regular expression"}


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The tools that a chat offers, and the choice among them."""

    offered: tuple[Tool, ...]
    choice: ToolChoice
    legacy: bool  # asked for, and to be answered, as functions and function_call
    parallel: bool  # several calls may follow one another
    notes: tuple[str, ...] = ()  # names of tools that are left out, and of parts of schemas that say nothing

    @property
    def for_template(self) -> list[dict[str, object]]:
        """The tools in the shape that chat templates are written for."""
        return [_described(tool) for tool in self.offered]

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools whose calls are looked for in an answer."""
        return self.offered if self.choice.mode != "none" else ()


def tool_options(body: ChatBody) -> ToolOptions:
    """Raises RequestError for a forced choice of what is not offered, and for a strict schema that is malformed."""
    offer = _Offer(body)
    choice = _choice(body, offer)
    legacy = bool(body.functions)
    parallel = body.parallel_tool_calls and not legacy and not _is_named(body)
    return ToolOptions(tuple(offer.tools.values()), choice, legacy, parallel, tuple(offer.notes))


class _Offer:
    """The tools by name. Of two tools of one name the first counts: a call could not tell which it means."""

    def __init__(self, body: ChatBody) -> None:
        self.tools: dict[str, Tool] = {}
        self.notes: list[str] = []
        self.forced = _forced_name(body)
        for path, tool in _made(body):
            if isinstance(tool, HostedTool):
                self.notes.append(path)
            else:
                self._add(path, tool)

    def _add(self, path: str, definition: FunctionDefinition | CustomDefinition) -> None:
        if definition.name in self.tools:
            self.notes.append(path)
        elif isinstance(definition, CustomDefinition):
            self.tools[definition.name] = _custom(definition, path)
        else:
            self.tools[definition.name] = self._function(definition, path)

    def _function(self, definition: FunctionDefinition, path: str) -> Tool:
        within = path if path.startswith("functions") else f"{path}.function"
        where = f"{within}.parameters"
        is_strict = definition.strict or definition.name == self.forced
        read = read_as_meant(definition.parameters, where)
        if read.faults and is_strict:
            fault = read.faults[0]
            raise RequestError(f"{fault.path} {fault.what}.", param=fault.path)
        self.notes += [fault.path for fault in read.faults]
        schema = read.schema if isinstance(read.schema, dict) else {"type": "object", "additionalProperties": True}
        return Tool(definition.name, schema or NO_PARAMETERS, definition.description, definition.strict, None, where)


def _made(body: ChatBody) -> Iterator[tuple[str, FunctionDefinition | CustomDefinition | HostedTool]]:
    """Each tool with the path of its entry."""
    for place, definition in enumerate(body.functions):
        yield f"functions[{place}]", definition
    for place, tool in enumerate(body.tools):
        match tool:
            case FunctionTool(function=function):
                yield f"tools[{place}]", function
            case CustomTool(custom=custom):
                yield f"tools[{place}]", custom
            case _:
                yield f"tools[{place}]", tool


def _custom(definition: CustomDefinition, path: str) -> Tool:
    """A function with one text argument; the model is told of the grammar in words."""
    rules = definition.format.rules
    if rules is None:
        form, description = TextInput(), definition.description
    else:
        form = TextInput(rules.syntax, rules.definition)
        words = f"The {INPUT} has to match this {_SYNTAXES[rules.syntax]}:\n{rules.definition}"
        description = f"{definition.description}\n\n{words}".lstrip()
    return Tool(definition.name, ONE_TEXT, description, text=form, schema_path=f"{path}.custom.format")


def _is_named(body: ChatBody) -> bool:
    return _forced_name(body) is not None


def _forced_name(body: ChatBody) -> str | None:
    """The one tool that has to be called."""
    if body.function_call is not None:
        return None if isinstance(body.function_call, str) else body.function_call.name
    match body.tool_choice:
        case None | str() | AllowedToolsChoice() | HostedTool():
            return None
        case named:
            return named.name


def _choice(body: ChatBody, offer: _Offer) -> ToolChoice:
    names = tuple(offer.tools)
    if body.function_call is not None:
        if isinstance(body.function_call, str):
            return ToolChoice(body.function_call, names)
        return _named(body.function_call.name, names, "function_call.name")
    match body.tool_choice:
        case None:
            return ToolChoice("auto" if names else "none", names)
        case AllowedToolsChoice() as choice:
            return _allowed(choice, offer)
        case "required" if not names:
            message = "tool_choice: a call is required, but there are no tools to call; send some functions."
            raise RequestError(message, param="tool_choice")
        case str() as word:
            return ToolChoice(word, names)
        case named:
            return _named(_name(named, "tool_choice"), names, f"tool_choice.{_kind(named)}.name")


def _allowed(choice: AllowedToolsChoice, offer: _Offer) -> ToolChoice:
    """The tools of the list that are offered; tools that the provider would run are left out of the list too."""
    allowed, path = choice.allowed_tools, "tool_choice.allowed_tools.tools"
    names: dict[str, None] = {}
    for place, named in enumerate(allowed.tools):
        if isinstance(named, HostedTool):
            offer.notes.append(f"{path}[{place}]")
        else:
            _named(named.name, tuple(offer.tools), f"{path}[{place}].{_kind(named)}.name")
            names[named.name] = None
    if allowed.mode == "required" and not names:
        raise RequestError(f"{path}: this server can offer none of these tools; name others.", param=path)
    return ToolChoice(allowed.mode, tuple(names))


def _name(named: AnyNamedTool, path: str) -> str:
    if isinstance(named, HostedTool):
        message = f"{path}.type: this server runs no tools of its own, so none of type '{named.type:.64}' can be forced"
        raise RequestError(f"{message}; choose another tool.", param=f"{path}.type", code="unsupported_value")
    return named.name


def _kind(named: AnyNamedTool) -> str:
    return named.type


def _named(name: str, names: tuple[str, ...], param: str) -> ToolChoice:
    if name not in names:
        raise RequestError(f"{param}: no tool of this name is in the request; name one that is.", param=param)
    return ToolChoice("required", (name,))


def _described(tool: Tool) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
