"""Calls as JSON objects with a name and arguments: Qwen and Hermes between tags, Llama 3 bare or after its tag."""

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING

from engine.formats.calls import NAME, CallWriter
from engine.formats.json_values import copy_value
from engine.formats.reader import Reader, Steps, drop
from engine.formats.tools import Tool

if TYPE_CHECKING:
    from engine.formats.grammar import Grammar

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
