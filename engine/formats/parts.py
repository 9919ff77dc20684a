"""What an answer is made of, in the order in which the model wrote it."""

from dataclasses import dataclass


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
