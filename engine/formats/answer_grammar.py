"""Whole grammars of answers: thinking as the model likes, then what the request asks for."""

from collections.abc import Sequence

from engine.formats.calls import ToolFormat
from engine.formats.grammar import ANY_TEXT, Grammar, regex
from engine.formats.marks import Marks
from engine.formats.tools import Tool, ToolChoice

_NEWLINES = "/\\n{1,2}/?"
_BARE_CALL = r"/\s*\{\s*\"name\"(?s:.*)/"


class AnswerGrammars:
    """Writes the grammars of one model; all tags are those of the stream."""

    def __init__(self, marks: Marks, thinking: tuple[str, str] | None, form: ToolFormat | None) -> None:
        self._marks = marks
        self._thinking = thinking
        self._form = form

    def answer(self, rule: str, *, inside_thinking: bool) -> str:
        """`rule` stands on the right of a rule."""
        grammar = Grammar(self._marks, {})
        return grammar.finished(f"{self._thought(grammar, inside_thinking)} {grammar.rule('answer', rule)}")

    def calls(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, inside_thinking: bool) -> str | None:
        """None where the model has no format for calls."""
        if self._form is None:
            return None
        params = {tool.name: f"tools[{place}].function.parameters" for place, tool in enumerate(tools)}
        grammar = Grammar(self._marks, params)
        allowed = {tool.name: tool for tool in tools if tool.name in choice.names}
        thought = self._thought(grammar, inside_thinking)
        if choice.mode == "none" or not allowed:
            return grammar.finished(f"{thought} {self._text(grammar, inside_thinking)}")
        rest = grammar.rule("calls", self._form.calls_rule(grammar, allowed, parallel=parallel))
        if choice.mode == "required":
            return grammar.finished(f"{thought} {self._begun(grammar)} {rest}")
        ways = [self._text(grammar, inside_thinking), f"{self._opened(grammar, inside_thinking)} {rest}"]
        if self._form.bare:
            ways.append(rest)
        starts = [f"{thought} {grammar.rule('answer', ' | '.join(ways))}"]
        if inside_thinking and self._thinking is not None:
            starts += [self._unfinished(grammar), f"{self._opened_in_thought(grammar)} {rest}"]
        return grammar.finished(" | ".join(starts))

    @property
    def _openings(self) -> tuple[str, ...]:
        return () if self._form is None else self._form.openings

    def _thought(self, grammar: Grammar, inside: bool) -> str:
        """Thinking with its end; where the prompt has not begun it, the model may do so or not."""
        if self._thinking is None:
            return ""
        opening, closing = self._thinking
        thought = f"{grammar.until(closing, without=self._openings)} {_NEWLINES}"
        return thought if inside else f"({_NEWLINES} {grammar.text(opening)} {thought})?"

    def _unfinished(self, grammar: Grammar) -> str:
        """Thinking that the answer's end cuts off."""
        assert self._thinking is not None
        return grammar.text_without((self._thinking[1], *self._openings))

    def _opened_in_thought(self, grammar: Grammar) -> str:
        """Thinking that ends with a call at the beginning of a line."""
        assert self._thinking is not None
        without = (self._thinking[1], *self._openings)
        return grammar.until(self._openings[0], body=r"/(?s:.*\n)?/", without=without)

    def _begun(self, grammar: Grammar) -> str:
        """What a call begins with where nothing stands before it."""
        assert self._form is not None
        return "" if self._form.bare else grammar.text(self._openings[0])

    def _text(self, grammar: Grammar, inside: bool) -> str:
        """Text in which no call begins."""
        return grammar.text_without(self._openings, but=self._free_text(inside))

    def _opened(self, grammar: Grammar, inside: bool) -> str:
        """Text, and then the tag that begins calls."""
        return grammar.until(self._openings[0], body=self._free_text(inside), without=self._openings)

    def _free_text(self, inside: bool) -> str:
        """A regular expression for text that does not begin with thinking or a call."""
        body = ANY_TEXT
        if self._form is not None and self._form.bare:
            body += f" & ~{_BARE_CALL}"
        if self._thinking is not None and not inside and self._marks.token(self._thinking[0]) is None:
            body += rf" & ~/\s*{regex(self._thinking[0])}(?s:.*)/"
        return body
