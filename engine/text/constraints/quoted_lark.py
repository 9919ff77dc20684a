"""A Lark grammar, rewritten for texts that stand between the quotes of a JSON string.

A tool with one text argument is called with JSON around its text. The text has to match the tool's grammar, so each
literal and each regular expression of the grammar becomes one of the same text with JSON's escapes (RFC 8259, 7).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llguidance import LLMatcher, LLTokenizer

_ESCAPES = {character: json.dumps(character)[1:-1] for character in '"\\\n\r\t\b\f'}
_PLAIN_ONLY = r'[^"\\\x00-\x1f]'  # what stands in a JSON string as it is
_PIECES = re.compile(
    r"""(?P<comment>//[^\n]*)
      | (?P<range>"(?:[^"\\\n]|\\.)"\s*\.\.\s*"(?:[^"\\\n]|\\.)")
      | (?P<string>"(?:[^"\\\n]|\\.)*"i?)
      | (?P<regex>/(?:\\.|[^/\\\n])+/[a-z]*)
      | (?P<imported>%import[^\n]*)
      | (?P<inline>%(?:json|regex|lark)\b|<[\[|\w])
      | (?P<syntax>[^"/%<]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_IMPORT = re.compile(r"%import\s+common(?:\.(?P<name>\w+)\s*(?:->\s*(?P<alias>\w+))?|\s*\((?P<names>[\w\s,]+)\))\s*\Z")
# The terminals of Lark's own library (lark/grammars/common.lark) whose texts JSON has to escape.
_COMMON = {
    "CR": r"/\r/",
    "LF": r"/\n/",
    "NEWLINE": r"/(\r?\n)+/",
    "WS_INLINE": r"/[ \t]+/",
    "WS": r"/[ \t\f\r\n]+/",
    "ESCAPED_STRING": r'/"(?:[^"\\\n]|\\.)*"/',
}
_ATTRIBUTE = re.compile(r"\w\[")
_DEFINITION = re.compile(r"(?m)^\s*[?!]*(\w+)(?:\.\d+)?\s*:")
_MODIFIERS = re.compile(r"(?m)^\s*[?!]+|(?<=\w)\.\d+(?=\s*:)")
_ALIAS = re.compile(r"->\s*\w+")
_RULE_NAME = re.compile(r"\b_?[a-z]\w*")
_ATOM = re.compile(r"\\(?:x\{[^}]*\}|x..|u\{[^}]*\}|u....|U\{[^}]*\}|U.{8}|[pP]\{[^}]*\}|[pP].|.)", re.DOTALL)
_ASSERTIONS = tuple("bBAzZG")
_GROUP = re.compile(r"\(\?(?:P?<\w+>|(?P<flags>[a-zA-Z-]*)(?P<end>[:)]))")


class UnquotableGrammarError(ValueError):
    """The grammar holds what has no meaning within a JSON string: another grammar, or tokens of the vocabulary."""


def quoted_lark(source: str) -> str:
    """The grammar of the same texts as they stand in a JSON string, without the quotes around them.

    Raises UnquotableGrammarError. What is no Lark at all comes out as it went in: the compiler says what is wrong.
    """
    pieces = list(_quoted_pieces(source))
    return _one_terminal(pieces) or "".join(piece.text for piece in pieces)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some of a grammar."""

    text: str
    is_syntax: bool = False  # names and signs; else a text, a regular expression or an import, whole


def _quoted_pieces(source: str) -> Iterator[_Piece]:
    for piece in _PIECES.finditer(source):
        text = piece[0]
        match piece.lastgroup:
            case "comment":
                continue
            case "range":
                first, last = (json.loads(each) for each in re.findall(r'"(?:[^"\\\n]|\\.)"', text))
                yield _Piece(f"/{_quoted_regex(f'[{_code(first)}-{_code(last)}]')}/")
            case "string":
                yield _Piece(_quoted_string(text))
            case "regex":
                body, _, flags = text[1:].rpartition("/")
                yield _Piece(f"/{_quoted_regex(body, flags)}/{flags}")
            case "imported":
                yield from _quoted_import(text)
            case "inline":
                raise UnquotableGrammarError(f"{text} cannot stand in a JSON string")
            case _:
                yield _Piece(text, is_syntax=True)


def _one_terminal(pieces: Sequence[_Piece]) -> str | None:
    """The grammar as one terminal; None where it recurs, ignores texts or has attributes.

    All escapes begin alike, and the lexer never goes back: after a line's text, it would take the first sign of a
    quoted line break for more of the line. Within one terminal there is nothing to go back to.
    """
    syntax = "".join(piece.text if piece.is_syntax else " TEXT " for piece in pieces)
    if "%ignore" in syntax or _ATTRIBUTE.search(syntax) or _recurs(syntax):
        return None
    return "start: RULE_START\n" + "".join(
        _as_terminal(piece.text) if piece.is_syntax else piece.text for piece in pieces
    )


def _as_terminal(syntax: str) -> str:
    """Rules renamed to terminals. Terminals know neither aliases nor [optional parts]."""
    syntax = _MODIFIERS.sub("", _ALIAS.sub("", syntax)).replace("[", "(").replace("]", ")?")
    return _RULE_NAME.sub(lambda name: f"RULE_{name[0].upper()}", syntax)


def _recurs(syntax: str) -> bool:
    """Whether a rule needs itself."""
    parts = _DEFINITION.split(syntax)
    needs = {name: set(re.findall(r"\w+", body)) for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    for _ in needs:
        for names in needs.values():
            names |= {each for name in tuple(names) for each in needs.get(name, ())}
    return any(name in names for name, names in needs.items())


def _quoted_string(literal: str) -> str:
    try:
        text = json.loads(literal.removesuffix("i"))
    except ValueError:
        raise UnquotableGrammarError(f"{literal} is no JSON string") from None
    if literal.endswith("i"):
        return f"/{''.join(_quoted_character(character) for character in text)}/i"
    return json.dumps(json.dumps(text, ensure_ascii=False)[1:-1])


def _quoted_import(line: str) -> Iterator[_Piece]:
    found = _IMPORT.match(line)
    if found is None:
        yield _Piece(line)
        return
    if found["name"]:
        names = {found["alias"] or found["name"]: found["name"]}
    else:
        names = {name: name for name in re.findall(r"\w+", found["names"])}
    for alias, name in names.items():
        if name in _COMMON:
            yield from (_Piece(f"\n{alias}: ", is_syntax=True), *_quoted_pieces(_COMMON[name]))
        else:
            yield _Piece(f"\n%import common.{name} -> {alias}")


def _quoted_regex(pattern: str, flags: str = "") -> str:
    """A regular expression for the escaped texts of this one. Both are Rust's."""
    if "x" in flags:
        raise UnquotableGrammarError("the flag x is not read")
    dot_is_all = ["s" in flags]  # of each open group
    quoted = []
    place = 0
    while place < len(pattern):
        step = pattern[place:]
        if group := _GROUP.match(step):
            _enter(group, dot_is_all)
            quoted.append(group[0])
            place += group.end()
            continue
        if step[0] == "(":
            dot_is_all.append(dot_is_all[-1])
        elif step[0] == ")" and len(dot_is_all) > 1:
            dot_is_all.pop()
        atom = _atom(step)
        quoted.append(_quoted_atom(r"[\s\S]" if atom == "." and dot_is_all[-1] else atom))
        place += len(atom)
    return "".join(quoted)


def _enter(group: re.Match[str], dot_is_all: list[bool]) -> None:
    """Keep what the head of a group says of the dot."""
    on, _, off = (group["flags"] or "").partition("-")
    if "x" in on:
        raise UnquotableGrammarError("the flag x is not read")
    is_all = (dot_is_all[-1] or "s" in on) and "s" not in off
    if group["end"] == ")":
        dot_is_all[-1] = is_all
    else:
        dot_is_all.append(is_all)


def _atom(pattern: str) -> str:
    """The part of a regular expression that matches one character, or one sign of its syntax."""
    if pattern[0] == "[":
        return pattern[: _class_end(pattern)]
    escape = _ATOM.match(pattern)
    if escape:
        return escape[0]
    if pattern[0] == "{":
        return pattern[: pattern.find("}") + 1] or pattern[0]
    return pattern[0]


def _class_end(pattern: str) -> int:
    """Where the class ends that the pattern begins with; classes nest."""
    depth, place = 0, 0
    while place < len(pattern):
        if pattern[place] == "[":
            depth += 1
            opened = re.compile(r"\[\^?\]?").match(pattern, place)
            assert opened is not None
            place = opened.end()
            continue
        if pattern[place] == "\\":
            place += 1
        elif pattern[place] == "]":
            depth -= 1
            if depth == 0:
                return place + 1
        place += 1
    raise UnquotableGrammarError("a class of characters does not end")


def _quoted_atom(atom: str) -> str:
    if len(atom) == 1 and atom not in "\\.":
        return atom if atom in "()|*+?^$" else _quoted_character(atom)
    if atom[0] == "{" or (atom[0] == "\\" and atom[1:].startswith(_ASSERTIONS)):
        return atom
    escapes = [re.escape(_ESCAPES[character]) for character in _ESCAPES if character in _specials(atom)]
    within = r"[^\n]" if atom == "." else atom
    return f"(?:{'|'.join([f'[{within}&&{_PLAIN_ONLY}]', *(f'(?-i:{each})' for each in escapes)])})"


def _quoted_character(character: str) -> str:
    if character in _ESCAPES:
        return f"(?-i:{re.escape(_ESCAPES[character])})"
    return character if character.isalnum() else _code(character)


def _code(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


@lru_cache(maxsize=1024)
def _specials(atom: str) -> str:
    """Those characters that JSON has to escape and that this atom matches, as the grammar's own engine reads it."""
    grammar = f"start: /{atom}/"
    if LLMatcher.validate_grammar(grammar):
        raise UnquotableGrammarError(f"{atom} is no class of characters")
    matcher = LLMatcher(LLTokenizer("byte"), grammar)
    return "".join(character for character in _ESCAPES if matcher.validate_tokens([ord(character)]))
