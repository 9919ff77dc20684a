"""The tools that a request declares, and the parts of an answer in the order in which the model wrote them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TextInput:
    """What the one text argument of a tool has to look like."""

    syntax: Literal["text", "lark", "regex"] = "text"
    definition: str = ""  # the grammar or the regular expression; nothing where any text will do


INPUT = "input"  # the name of that argument


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that the model may call."""

    name: str
    parameters: Mapping[str, object]  # JSON schema of an object
    description: str = ""
    strict: bool = False  # a schema that cannot be enforced in full is refused, not loosened
    text: TextInput | None = None  # the tool takes one text, and its caller wants no JSON around the text
    schema_path: str = "parameters"  # where the request has the schema


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether a call may or must be made, and of what."""

    mode: Literal["none", "auto", "required"]
    names: tuple[str, ...]  # functions that may be called


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
    is_text: bool = False  # the arguments are the tool's one text


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments; a call's pieces together are the JSON text of one object, or the tool's one text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments are complete. A call that the answer's end cuts off has none."""

    index: int


Part = Reasoning | Content | CallBegin | CallArguments | CallEnd
