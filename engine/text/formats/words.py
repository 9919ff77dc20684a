"""Tools in words, for chat templates that have no place for tools: they become a part of the messages' texts.

Some templates write calls but never say which tools there are, such as DeepSeek V3.1's. Others know nothing of tools:
the model is told of them as Hermes models are, and calls and results stand in the texts in the same form.
"""

import json
from collections.abc import Mapping, Sequence

from engine.text.formats.parts import Tool

PlainMessage = dict[str, object]
_HOW_TO_CALL = """
To call a function, write one JSON object with its name and its arguments between these tags, and nothing after them:
<tool_call>
{"name": "the name of the function", "arguments": {}}
</tool_call>
Several calls follow one another, each between tags of its own. The results come back between <tool_response> tags."""


def declarations(tools: Sequence[Tool]) -> str:
    """What a system message tells of the tools to models that know how a call is written."""
    return "\n\n".join(["## Tools\nYou have access to the following tools:", *map(_declaration, tools)])


def _declaration(tool: Tool) -> str:
    return f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {_json(tool.parameters)}"


def instructions(tools: Sequence[Tool]) -> str:
    """What a system message tells of the tools, and of how to call them."""
    described = [
        _json({"name": tool.name, "description": tool.description, "parameters": tool.parameters}) for tool in tools
    ]
    lines = ["# Tools", "You can call these functions; each is described by one JSON object:", "<tools>"]
    return "\n".join([*lines, *described, "</tools>", _HOW_TO_CALL])


def in_words(message: Mapping[str, object]) -> PlainMessage:
    """The message with its calls as text; a tool's result as the user's words."""
    plain = dict(message)
    if plain.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{plain.get('content', '')}\n</tool_response>"}
    calls = plain.pop("tool_calls", None)
    if isinstance(calls, Sequence) and calls:
        written = [f"<tool_call>\n{_call(call['function'])}\n</tool_call>" for call in calls]
        plain["content"] = "\n".join([*filter(None, [str(plain.get("content") or "")]), *written])
    return plain


def _call(function: Mapping[str, object]) -> str:
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _json(arguments)
    return f'{{"name": {_json(function.get("name"))}, "arguments": {text or "{}"}}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
