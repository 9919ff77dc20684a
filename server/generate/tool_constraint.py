"""What limits an answer that may hold calls. One odd schema frees the arguments of its tool and ends no request."""

from dataclasses import replace

from engine.api.constraint import Constraint
from engine.errors import GrammarTimeoutError, RequestError
from engine.text.formats.parts import TextInput, Tool, ToolChoice
from server.generate.chat_tools import ToolOptions
from server.served import ServedModel

ANY_OBJECT = {"type": "object", "additionalProperties": True}


def tool_constraint(
    tools: ToolOptions, model: ServedModel, *, inside_thinking: bool, rule: str | None, param: str
) -> tuple[Constraint | None, tuple[str, ...]]:
    """The constraint, and the paths of what it leaves out of the tools' schemas. Blocking.

    `rule` is the form of an answer that is no call, and `param` what asks for it. Raises RequestError for a rule that
    cannot be kept, and for the schema of a strict tool that cannot.
    """

    def compiled(offered: tuple[Tool, ...], choice: ToolChoice) -> tuple[Constraint | None, tuple[str, ...]]:
        grammar = model.format.tool_grammar(
            offered, choice, parallel=tools.parallel, inside_thinking=inside_thinking, rule=rule
        )
        return (None, ()) if grammar is None else (model.constraints.compile(grammar.text, param=param), grammar.freed)

    try:
        return compiled(tools.offered, tools.choice)
    except (RequestError, GrammarTimeoutError):
        offered, freed = _without_odd_schemas(tools, model)
        if not freed:
            raise
        constraint, also_freed = compiled(offered, tools.choice)
        return constraint, (*freed, *also_freed)


def _without_odd_schemas(tools: ToolOptions, model: ServedModel) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools, with the arguments of those free whose own grammar does not compile; and the paths of these."""
    offered, freed = [], []
    for tool in tools.offered:
        if tool.name in tools.choice.names and not _compiles(tool, model):
            freed.append(tool.schema_path)
            tool = replace(tool, parameters=ANY_OBJECT) if tool.text is None else replace(tool, text=TextInput())
        offered.append(tool)
    return tuple(offered), tuple(freed)


def _compiles(tool: Tool, model: ServedModel) -> bool:
    """Raises RequestError where not and the tool is strict."""
    grammar = model.format.tool_grammar(
        [tool], ToolChoice("required", (tool.name,)), parallel=False, inside_thinking=False
    )
    assert grammar is not None
    try:
        model.constraints.compile(grammar.text, param=tool.schema_path)
    except (RequestError, GrammarTimeoutError):
        if tool.strict:
            raise
        return False
    return True
