"""Writes grammars in the dialect of engine.constraints: rules, tags, and text that ends at a tag."""

import json
import re
from collections.abc import Collection, Sequence

from engine.errors import RequestError
from engine.text.constraints.json_schema import may_be_closed
from engine.text.constraints.quoted_lark import UnquotableGrammarError, quoted_lark
from engine.text.constraints.rules import free_schema_rule, json_schema_rule, lark_grammar, regex_rule
from engine.text.formats.marks import Marks, split_at_mark
from engine.text.formats.parts import INPUT, TextInput, Tool

ANY_TEXT = "/(?s:.*)/"
_OPENING, _CLOSING = json.dumps(f'{{"{INPUT}": "'), json.dumps('"}')  # of the JSON around a tool's one text
_NEEDS_ESCAPE = re.compile(r"[^\w\s<>=:\"'!,;%@`]", re.ASCII)


class Grammar:
    """A grammar in the making. What the methods return stands on the right of a rule."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._lines: list[str] = []
        self.freed: dict[str, None] = {}  # paths of what tools' schemas ask for and the grammar does not hold

    def finished(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join([f"start: {start}", *self._lines])

    def rule(self, name: str, body: str) -> str:
        """A rule of its own, under a name like this."""
        return self._add(f"{name}_{len(self._lines)}", body)

    def terminal(self, body: str) -> str:
        """A terminal of its own: one regular expression."""
        return self._add(f"TEXT_{len(self._lines)}", body)

    def text(self, tag: str) -> str:
        """Exactly these characters and marks."""
        return self._marks.lark(tag)

    def is_text(self, tag: str) -> bool:
        """Whether the tag holds no mark."""
        return not split_at_mark(tag)[1]

    def text_without(self, tags: Collection[str], *, but: str = ANY_TEXT) -> str:
        """Any text (or `but`) that does not hold one of the tags. Those with marks are in no text anyway."""
        plain = [tag for tag in tags if self.is_text(tag)]
        return self.terminal(_excluding(but, plain))

    def until(self, tag: str, *, body: str = ANY_TEXT, without: Sequence[str] = ()) -> str:
        """Text like `body`, without the tags `without`, and then the tag, where it comes first."""
        before, rest = split_at_mark(tag)
        body = _excluding(body, [each for each in without if self.is_text(each)])
        if not before:
            return f"{self.terminal(body)} {self.text(rest)}"
        whole = self.terminal(f"({body}) {self.text(before)}")
        if rest:
            return f"{whole} {self.text(rest)}"
        return self._add(f"until_{len(self._lines)}[lazy]", whole).removesuffix("[lazy]")

    def arguments(self, tool: Tool) -> str:
        """A JSON object as the tool's schema has it, or with the one text that its grammar allows."""
        if (text := self.text_rule(tool, in_json=True)) is not None:
            return self.rule("arguments", f"{_OPENING} {text} {_CLOSING}")
        schema: dict[str, object] = {"type": "object", **tool.parameters}
        if may_be_closed(schema):
            schema["additionalProperties"] = False
        return self.rule("arguments", self.schema_rule(tool, schema, tool.schema_path))

    def text_rule(self, tool: Tool, *, in_json: bool) -> str | None:
        """The tool's one text, as it is or as it stands in a JSON string; None where any text will do."""
        try:
            source = None if tool.text is None else _lark(tool.text, tool.schema_path)
            if source is None:
                return None
            return lark_grammar(quoted_lark(source) if in_json else source, param=tool.schema_path)
        except (RequestError, UnquotableGrammarError):
            self.freed[tool.schema_path] = None
            return None

    def schema_rule(self, tool: Tool, schema: object, path: str) -> str:
        """A value of a part of the tool's schema."""
        if tool.strict:
            return json_schema_rule(schema, param=path, closed=True)
        freed = free_schema_rule(schema, param=path)
        self.freed |= dict.fromkeys(freed.freed)
        return freed.rule

    def _add(self, name: str, body: str) -> str:
        self._lines.append(f"{name}: {body}")
        return name


def regex(text: str) -> str:
    """A regular expression for exactly this text."""
    return _NEEDS_ESCAPE.sub(lambda found: f"\\x{{{ord(found[0]):x}}}", text).replace("\n", "\\n").replace("\r", "\\r")


def _lark(text: TextInput, param: str) -> str | None:
    """The grammar of a tool's text."""
    if text.syntax == "regex":
        return f"start: {regex_rule(text.definition, param=param)}"
    return text.definition if text.syntax == "lark" else None


def _excluding(body: str, tags: Sequence[str]) -> str:
    if not tags:
        return body
    return f"({body}) & ~/(?s:.*)({'|'.join(map(regex, tags))})(?s:.*)/"
