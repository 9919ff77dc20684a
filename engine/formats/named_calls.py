"""Calls as a name and a JSON object between tags: DeepSeek V3, R1 and V3.1, and Kimi K2."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.formats.calls import NAME, CallWriter
from engine.formats.json_values import copy_value
from engine.formats.reader import Reader, Steps
from engine.formats.tools import Tool

if TYPE_CHECKING:
    from engine.formats.grammar import Grammar

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
