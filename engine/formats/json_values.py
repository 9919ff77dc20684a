"""Copies JSON values out of the stream, byte for byte, without building them."""

import re

from engine.formats.marks import SURROGATES
from engine.formats.reader import Reader, Steps, Write

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
