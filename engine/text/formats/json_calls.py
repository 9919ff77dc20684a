"""Tool calls whose arguments are JSON, copied out of the stream byte for byte without being built.

Objects with a name and arguments: Qwen and Hermes between tags, Llama 3 bare or after its tag. A name before an
object, between tags: DeepSeek V3, R1 and V3.1, and Kimi K2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING

from engine.text.formats.calls import NAME, CallWriter
from engine.text.formats.marks import SURROGATES
from engine.text.formats.parts import Tool
from engine.text.formats.reader import Reader, Steps, Write, drop

if TYPE_CHECKING:
    from engine.text.formats.grammar import Grammar


_STRUCTURE = re.compile(rf'[^"{{}}\[\]{SURROGATES}]+')
_STRING = re.compile(rf'(?:[^"\\{SURROGATES}]++|\\[^{SURROGATES}])++', re.DOTALL)
_SCALAR = re.compile(r"[\w.+-]+")


def copy_value(reader: Reader, write: Write) -> Steps[bool]:
    """Copy the next value; false where it breaks off: at the answer's end, or at a mark outside of its strings."""
    first = yield from reader.skip_space()
    if first == '"':
        write(reader.take())
        return (yield from _copy_string(reader, write))
    if first and first in "{[":
        return (yield from _copy_structure(reader, write))
    return bool((yield from reader.copy_while(_SCALAR, write)))


def _copy_structure(reader: Reader, write: Write) -> Steps[bool]:
    depth = 0
    while True:
        character = yield from reader.copy_while(_STRUCTURE, write)
        if not character or character not in '"{}[]':
            return False
        write(reader.take())
        if character == '"':
            if not (yield from _copy_string(reader, write)):
                return False
            continue
        depth += 1 if character in "{[" else -1
        if depth == 0:
            return True


def _copy_string(reader: Reader, write: Write) -> Steps[bool]:
    """Copy the rest of a string with its closing quote."""
    while character := (yield from reader.copy_while(_STRING, write)):
        write(reader.take())
        if character == '"':
            return True
        if character == "\\" and (yield from reader.peek()):
            write(reader.take())
    return False


_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """{"name": .., "arguments": ..}, the name first. An object that does not name a declared tool is text."""

    name: str
    openings: tuple[str, ...]
    close: str = ""  # after every object
    padding: str = ""  # between a tag and the object
    key: str = "arguments"
    separator: str = ""  # between objects behind one opening
    bare: bool = False

    def read(self, found: str, reader: Reader, writer: CallWriter) -> Steps[str]:
        reader.record(found)
        while (yield from _read_call(reader, writer)):
            reader.record()
            next_character = yield from reader.skip_space()
            if self.close:
                if (yield from reader.one_of((self.close,))):
                    reader.forget()
                break
            if next_character == self.separator:
                reader.take()
            elif next_character != "{":
                break
        return reader.recorded()

    def calls_rule(self, grammar: "Grammar", tools: Mapping[str, Tool], *, parallel: bool) -> str:
        objects = [
            f"{grammar.text(self._head(name))} {grammar.arguments(tool)} {grammar.text('}')}"
            for name, tool in tools.items()
        ]
        body = grammar.rule("call", " | ".join(objects))
        padding = grammar.text(self.padding)
        first = f"{padding} {body} {padding} {grammar.text(self.close)}"
        if not parallel:
            return first
        more = f"/; ?/ {body}" if self.separator else f'"\\n" {grammar.text(self.openings[0])} {first}'
        return f"{first} ({more})*"

    def _head(self, name: str) -> str:
        return f'{{"name": {dumps(name)}, "{self.key}": '


def _read_call(reader: Reader, writer: CallWriter) -> Steps[bool]:
    """Read one object; false where it is no call. Whatever else it holds besides name and arguments is dropped."""
    if (yield from reader.skip_space()) != "{":
        return False
    reader.take()
    if (yield from _read_key(reader)) != "name":
        return False
    name = yield from _read_name(reader)
    if name not in writer.tools:
        return False
    writer.begin(name)
    complete = False
    while (yield from reader.skip_space()) == ",":
        reader.take()
        key = yield from _read_key(reader)
        wanted = key in _ARGUMENTS and not complete
        whole = yield from copy_value(reader, writer.arguments if wanted else drop)
        if not whole:
            return True
        if wanted:
            writer.end()
            complete = True
    if (yield from reader.peek()) == "}":
        reader.take()
        if not complete:
            writer.arguments("{}")
            writer.end()
    return True


def _read_key(reader: Reader) -> Steps[str]:
    """A key and its colon; empty where there is none."""
    yield from reader.skip_space()
    key = yield from _read_name(reader)
    if (yield from reader.skip_space()) != ":":
        return ""
    reader.take()
    yield from reader.skip_space()
    return key


def _read_name(reader: Reader) -> Steps[str]:
    """A string such as names are; empty where there is none."""
    pieces: list[str] = []
    if (yield from reader.peek()) != '"':
        return ""
    reader.take()
    if (yield from reader.copy_while(NAME, pieces.append)) != '"':
        return ""
    reader.take()
    return "".join(pieces)


_NUMBER = re.compile(r":\d+\Z")


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """Calls in one section. One of a tool that is not declared is text."""

    name: str
    section: tuple[str, str]  # what begins and ends it
    call: tuple[str, str]
    before_name: str
    after_name: str
    after_arguments: str = ""
    numbered: bool = False  # the name ends with ":" and the number of the call
    bare: bool = False

    @property
    def openings(self) -> tuple[str, ...]:
        return self.section[0], self.call[0]

    def read(self, found: str, reader: Reader, writer: CallWriter) -> Steps[str]:
        reader.record(found)
        opened = found == self.call[0]
        while True:
            if not opened:
                yield from reader.skip_space()
                tag = yield from reader.one_of((self.call[0], self.section[1]))
                if tag == self.section[1]:
                    reader.forget()
                if tag != self.call[0]:
                    return reader.recorded()
            if not (yield from self._read_call(reader, writer)):
                return reader.recorded()
            reader.record()
            opened = False

    def _read_call(self, reader: Reader, writer: CallWriter) -> Steps[bool]:
        if self.before_name and not (yield from reader.one_of((self.before_name,))):
            return False
        pieces: list[str] = []
        yield from reader.copy_while(NAME, pieces.append)
        if not (yield from reader.one_of((self.after_name,))):
            return False
        name = "".join(pieces)
        if self.numbered:
            name = _NUMBER.sub("", name)
        if name not in writer.tools:
            return False
        writer.begin(name)
        if (yield from copy_value(reader, writer.arguments)):
            writer.end()
        yield from reader.skip_space()
        for tag in (self.after_arguments.lstrip(), self.call[1]):
            if tag:
                yield from reader.one_of((tag,))
        return True

    def calls_rule(self, grammar: "Grammar", tools: Mapping[str, Tool], *, parallel: bool) -> str:
        number = ' ":" /[0-9]+/ ' if self.numbered else " "
        bodies = [
            f"{grammar.text(self.before_name + name)}{number}{grammar.text(self.after_name)}"
            f" {grammar.arguments(tool)} {grammar.text(self.after_arguments)}"
            for name, tool in tools.items()
        ]
        body = grammar.rule("call", " | ".join(bodies))
        call = f"{grammar.text(self.call[0])} {body} {grammar.text(self.call[1])}"
        more = f' ("\\n"? {call})*' if parallel else ""
        return f"{call}{more} {grammar.text(self.section[1])}"
