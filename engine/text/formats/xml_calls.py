"""Calls as tags with one tag a parameter: Qwen3-Coder and its kin, Seed-OSS, MiniMax, DeepSeek V3.2 and V4."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.text.formats.calls import NAME, CallWriter, escaped
from engine.text.formats.marks import split_at_mark
from engine.text.formats.parameters import ALL_TYPES, as_json, json_types, parameter_schema
from engine.text.formats.parts import Tool
from engine.text.formats.reader import Reader, Steps, Tags, drop
from engine.text.formats.xml_grammar import Kind, ParameterTags, parameters_rule

if TYPE_CHECKING:
    from engine.text.formats.grammar import Grammar

LINE = "\n"


@dataclass(frozen=True, slots=True)
class XmlCalls:
    """Calls in a section. Values are text, or JSON where the tool's schema or the tag says so and they are JSON."""

    name: str
    openings: tuple[str, ...]  # of the section; the first is what the model was taught, the rest is tolerated
    closings: tuple[str, ...]
    call: tuple[str, str, str]  # before the name, after it, after the call
    parameter: tuple[str, str]  # before the key, after the value
    key_ends: tuple[tuple[str, Kind], ...]  # after the key, and what this says of the value
    padding: str = ""  # one on each side of a value, no part of it
    many: bool = False  # a section holds all calls, not one
    bare: bool = False

    def read(self, found: str, reader: Reader, writer: CallWriter) -> Steps[str]:
        reader.record(found)
        while True:
            yield from reader.skip_space()
            tag = yield from reader.one_of((self.call[0], *self.closings))
            if tag == self.call[0]:
                tag = yield from self._read_call(reader, writer)
            if tag in self.closings:
                reader.forget()
            if tag != self.call[2]:
                return reader.recorded()
            reader.record()

    def _read_call(self, reader: Reader, writer: CallWriter) -> Steps[str | None]:
        """Read one call; returns the tag that ended it, None where it did not end or is none."""
        pieces: list[str] = []
        yield from reader.copy_while(NAME, pieces.append)
        if not (yield from reader.one_of((self.call[1],))) or "".join(pieces) not in writer.tools:
            return None
        arguments = _Arguments(writer, writer.begin("".join(pieces)))
        tags = Tags(self.parameter[0], self.call[2], *self.closings)
        tag: str | None = ""
        while tag is not None:
            if not tag:
                tag = yield from reader.copy_until(tags, drop)
            elif tag == self.parameter[0]:
                tag = yield from self._read_parameter(reader, arguments)
            else:
                arguments.end()
                return tag
        return None

    def _read_parameter(self, reader: Reader, arguments: "_Arguments") -> Steps[str | None]:
        """Read key and value; returns the tag after them if that was read too, None at the answer's end."""
        kinds = dict(self.key_ends)
        pieces: list[str] = []
        key_end = yield from reader.copy_until(Tags(*kinds), pieces.append)
        if key_end is None:
            return None
        value = arguments.value("".join(pieces), kinds[key_end], self.padding)
        endings = self.endings()
        found = yield from reader.copy_until(Tags(*endings), value.write, rest=drop)
        if found is None:
            value.cut()
            return None
        value.end(padded=not found.startswith("\n"))
        return endings[found]

    def endings(self) -> dict[str, str]:
        """What ends a value, its own tag or at a line's start the next, and the tag that is then read."""
        endings = {self.parameter[1]: ""}
        for tag in (self.parameter[0], self.call[2], *self.closings):
            is_mark = not split_at_mark(tag)[0]
            endings[tag if is_mark else "\n" + tag] = tag
        return endings

    def calls_rule(self, grammar: "Grammar", tools: Mapping[str, Tool], *, parallel: bool) -> str:
        tags = ParameterTags(self.parameter, self.key_ends, tuple(self.endings()), self.padding)
        calls = [
            f"{grammar.text(self.call[0] + name + self.call[1] + LINE)} {parameters_rule(tags, grammar, tool)}"
            f" {grammar.text(self.call[2] + LINE)}"
            for name, tool in tools.items()
        ]
        body = grammar.rule("call", " | ".join(calls))
        close = grammar.text(self.closings[0])
        if self.many:
            return f'"\\n" {body}{"+" if parallel else ""} {close}'
        more = f' ("\\n" {grammar.text(self.openings[0])} "\\n" {body} {close})*' if parallel else ""
        return f'"\\n" {body} {close}{more}'


class _Arguments:
    """The JSON object of one call, written as its parameters come."""

    def __init__(self, writer: CallWriter, tool: Tool) -> None:
        self._writer = writer
        self._schema = tool.parameters
        self._before = "{"

    def value(self, key: str, kind: Kind, padding: str) -> "_Value":
        """Begin a parameter."""
        types = json_types(parameter_schema(self._schema, key), self._schema)
        self._writer.arguments(f'{self._before}"{escaped(self._writer.plain(key))}": ')
        self._before = ", "
        if kind == "text" or (kind == "schema" and types <= {"string"}):
            return _TextValue(self._writer, padding)
        return _JsonValue(self._writer, padding, (types or ALL_TYPES) - ({"string"} if kind == "schema" else set()))

    def end(self) -> None:
        """No more parameters."""
        self._writer.arguments("{}" if self._before == "{" else "}")
        self._writer.end()


class _Value:
    """A value without the padding around it."""

    def __init__(self, write: Callable[[str], None], padding: str) -> None:
        self._write = write
        self._padding = padding
        self._begun = False
        self._held = ""

    def write(self, text: str) -> None:
        """Some more of it."""
        if not self._begun:
            self._begun = True
            text = text.removeprefix(self._padding)
        text = self._held + text
        self._held = self._padding if self._padding and text.endswith(self._padding) else ""
        if text := text.removesuffix(self._held):
            self._write(text)

    def end(self, *, padded: bool) -> None:
        """It is whole; `padded` where the padding after it was not read with its end tag."""
        if self._held and not padded:
            self._write(self._held)

    def cut(self) -> None:
        """The answer ends inside it."""


class _TextValue(_Value):
    """A string, sent as it comes."""

    def __init__(self, writer: CallWriter, padding: str) -> None:
        super().__init__(writer.string, padding)
        self._writer = writer
        writer.arguments('"')

    def end(self, *, padded: bool) -> None:
        super().end(padded=padded)
        self._writer.arguments('"')


class _JsonValue(_Value):
    """A value whose type only its end tells."""

    def __init__(self, writer: CallWriter, padding: str, types: frozenset[str]) -> None:
        self._pieces: list[str] = []
        super().__init__(self._pieces.append, padding)
        self._writer = writer
        self._types = types

    def end(self, *, padded: bool) -> None:
        super().end(padded=padded)
        self._writer.arguments(as_json(self._writer.plain("".join(self._pieces)), self._types))

    def cut(self) -> None:
        self._writer.arguments(self._writer.plain("".join(self._pieces)))
