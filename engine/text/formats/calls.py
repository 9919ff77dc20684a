"""What every format's parser shares: the names it may call, where the calls go, and what a format is."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from engine.text.formats.marks import SURROGATES, Marks
from engine.text.formats.parts import INPUT, CallArguments, CallBegin, CallEnd, Part, Tool
from engine.text.formats.reader import Reader, Steps

if TYPE_CHECKING:
    from engine.text.formats.grammar import Grammar

NAME = re.compile(r"[\w.:/-]+")
_MARK = re.compile(f"[{SURROGATES}]")


class InputText:
    """The one text argument of a tool, read out of the JSON around the text as it comes."""

    _HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
    _BODY = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
    _HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")  # the first of two escapes of one character

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def feed(self, piece: str) -> str:
        """What more of the JSON brings of the text."""
        self._held += piece
        if not self._begun:
            head = self._HEAD.match(self._held)
            if head is None:
                return ""
            self._begun = True
            self._held = self._held[head.end() :]
        body = self._BODY.match(self._held)
        assert body is not None
        whole = self._HALF.sub("", body[0])
        self._held = self._held[len(whole) :]
        text: str = json.loads(f'"{whole}"', strict=False)
        return text


class CallWriter:
    """Turns what a format's parser finds into parts."""

    def __init__(self, tools: Mapping[str, Tool], marks: Marks, reader: Reader, emit: Callable[[Part], None]) -> None:
        self.tools = tools
        self.count = 0
        self._input: InputText | None = None
        self._marks = marks
        self._reader = reader
        self._emit = emit

    def begin(self, name: str) -> Tool:
        """A call of a declared tool has begun for sure: what was read is no text any more."""
        self._reader.forget()
        tool = self.tools[name]
        self._input = None if tool.text is None else InputText()
        self._emit(CallBegin(self.count, name, tool.text is not None))
        self.count += 1
        return tool

    def arguments(self, text: str) -> None:
        """Some JSON text; a mark in it stands inside a string."""
        self._write(_MARK.sub(lambda mark: escaped(self._marks.plain(mark[0])), text))

    def string(self, text: str) -> None:
        """Some of the text of a string, which JSON has to escape."""
        self._write(escaped(self._marks.plain(text)))

    def plain(self, text: str) -> str:
        """A text of the stream as people read it."""
        return self._marks.plain(text)

    def end(self) -> None:
        """The arguments are complete."""
        self._emit(CallEnd(self.count - 1))

    def _write(self, text: str) -> None:
        if self._input is not None:
            text = self._input.feed(text)
        if text:
            self._emit(CallArguments(self.count - 1, text))


class ToolFormat(Protocol):
    """How one family of models writes calls; its tags are those of the stream."""

    @property
    def name(self) -> str: ...

    @property
    def openings(self) -> tuple[str, ...]:
        """The tags that begin calls; the first is the one that the grammar writes."""
        ...

    @property
    def bare(self) -> bool:
        """Whether an answer that begins with a brace may be a call without any tag."""
        ...

    def read(self, found: str, reader: Reader, writer: CallWriter) -> Steps[str]:
        """Read calls, after the opening `found`. Returns the text behind the last call that was no call after all."""
        ...

    def calls_rule(self, grammar: "Grammar", tools: Mapping[str, Tool], *, parallel: bool) -> str:
        """What follows the first opening, up to the end of the last call."""
        ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Format = TypeVar("Format", bound=_Dataclass)


def in_stream(form: Format, marks: Marks) -> Format:
    """The same format with its tags as the parser meets them."""
    texts = {field.name: _translated(getattr(form, field.name), marks) for field in fields(form)}
    return replace(form, **texts)


def escaped(text: str) -> str:
    """A text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _translated(value: object, marks: Marks) -> object:
    if isinstance(value, str):
        return marks.in_stream(value)
    if isinstance(value, tuple):
        return tuple(_translated(each, marks) for each in value)
    return value
