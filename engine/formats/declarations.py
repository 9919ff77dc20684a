"""Tools in words: for templates that write calls but never say which tools there are, such as DeepSeek V3.1's."""

import json
from collections.abc import Sequence

from engine.formats.tools import Tool


def declarations(tools: Sequence[Tool]) -> str:
    """What a system message tells of the tools; how a call is written, such models know."""
    return "\n\n".join(["## Tools\nYou have access to the following tools:", *map(_declaration, tools)])


def _declaration(tool: Tool) -> str:
    parameters = json.dumps(tool.parameters, ensure_ascii=False)
    return f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {parameters}"
