"""The tools that a request declares, and the parts of an answer in the order in which the model wrote them.

Some templates write calls but never say which tools there are, such as DeepSeek V3.1's: for them the tools are put in
words.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that the model may call."""

    name: str
    parameters: Mapping[str, object]  # JSON schema of an object
    description: str = ""
    strict: bool = False  # a schema that cannot be enforced in full is refused, not loosened


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether a call may or must be made, and of what."""

    mode: Literal["none", "auto", "required"]
    names: tuple[str, ...]  # functions that may be called


def declarations(tools: Sequence[Tool]) -> str:
    """What a system message tells of the tools; how a call is written, such models know."""
    return "\n\n".join(["## Tools\nYou have access to the following tools:", *map(_declaration, tools)])


def _declaration(tool: Tool) -> str:
    parameters = json.dumps(tool.parameters, ensure_ascii=False)
    return f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {parameters}"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """What it says to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool is called; `index` counts the answer's calls from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments; a call's pieces together are the JSON text of one object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments are complete. A call that the answer's end cuts off has none."""

    index: int


Part = Reasoning | Content | CallBegin | CallArguments | CallEnd
