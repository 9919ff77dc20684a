"""How one model writes its answers: the door to the parsing of answers, and to the grammars that limit answers.

A grammar covers a whole answer: thinking as the model likes, then what the request asks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.api.request import Thinking
from engine.text.formats.calls import ToolFormat, in_stream
from engine.text.formats.detection import HERMES, KnownFormat, tag_tokens, think_tags, tool_format
from engine.text.formats.grammar import ANY_TEXT, Grammar, regex
from engine.text.formats.marks import Marks
from engine.text.formats.parser import AnswerParser
from engine.text.formats.parts import Tool, ToolChoice
from engine.text.tokenizer import Tokenizer

_NEWLINES = "/\\n{1,2}/?"
_BARE_CALL = r"/\s*\{\s*\"name\"(?s:.*)/"


@dataclass(frozen=True, slots=True)
class ToolGrammar:
    """The grammar of an answer that may hold calls, and the paths of what it could not take from tools' schemas."""

    text: str
    freed: tuple[str, ...]


class AnswerGrammars:
    """Writes the grammars of one model; all tags are those of the stream."""

    def __init__(self, marks: Marks, thinking: tuple[str, str] | None, form: ToolFormat | None) -> None:
        self._marks = marks
        self._thinking = thinking
        self._form = form

    def answer(self, rule: str, *, inside_thinking: bool) -> str:
        """`rule` stands on the right of a rule."""
        grammar = Grammar(self._marks)
        return grammar.finished(f"{self._thought(grammar, inside_thinking)} {grammar.rule('answer', rule)}")

    def calls(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, inside_thinking: bool, rule: str | None
    ) -> ToolGrammar | None:
        """Text, calls, or text and then calls. Where there is a `rule`, calls, or a text of the rule and nothing else.

        None where the model has no format for calls.
        """
        if self._form is None:
            return None
        grammar = Grammar(self._marks)
        allowed = {tool.name: tool for tool in tools if tool.name in choice.names}
        if choice.mode == "none" or not allowed:
            start = f"{self._thought(grammar, inside_thinking)} {self._text(grammar, inside_thinking, rule)}"
        else:
            start = self._with_calls(grammar, self._form, allowed, choice, parallel, inside_thinking, rule)
        return ToolGrammar(grammar.finished(start), tuple(grammar.freed))

    def _with_calls(
        self,
        grammar: Grammar,
        form: ToolFormat,
        allowed: Mapping[str, Tool],
        choice: ToolChoice,
        parallel: bool,
        inside_thinking: bool,
        rule: str | None,
    ) -> str:
        thought = self._thought(grammar, inside_thinking)
        rest = grammar.rule("calls", form.calls_rule(grammar, allowed, parallel=parallel))
        if choice.mode == "required":
            return f"{thought} {self._begun(grammar)} {rest}"
        before = self._opened(grammar, inside_thinking) if rule is None else grammar.text(self._openings[0])
        ways = [self._text(grammar, inside_thinking, rule), f"{before} {rest}"]
        if form.bare:
            ways.append(rest)
        starts = [f"{thought} {grammar.rule('answer', ' | '.join(ways))}"]
        if inside_thinking and self._thinking is not None:
            starts += [self._unfinished(grammar), f"{self._opened_in_thought(grammar)} {rest}"]
        return " | ".join(starts)

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

    def _text(self, grammar: Grammar, inside: bool, rule: str | None) -> str:
        """Text in which no call begins, or of the form that the request asks for."""
        if rule is not None:
            return grammar.rule("form", rule)
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


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """What opens and closes thinking, as people read it, and as tokens."""

    opening: str
    closing: str
    start_id: int | None  # None: not one token
    end_ids: tuple[int, ...]


class AnswerFormat:
    """Read-only; one a model. Without a template there is neither thinking nor tools."""

    def __init__(
        self,
        tags: tuple[str, str] | None,
        form: KnownFormat | None,
        tokenizer: Tokenizer,
        *,
        tools_in_words: bool = False,
    ) -> None:
        """`form` has its tags as people read them."""
        self.tools_in_words = tools_in_words  # the template has no place for tools: see words.py
        self._marks = Marks(tag_tokens(tags, form), tokenizer)
        self.tools = form
        self._form = None if form is None else in_stream(form, self._marks)
        self._tags = None if tags is None else (self._marks.in_stream(tags[0]), self._marks.in_stream(tags[1]))
        self.thinking = None if tags is None else self._think_tags(tags, tokenizer)
        self._grammars = AnswerGrammars(self._marks, self._tags, self._form)

    @property
    def marks(self) -> frozenset[int]:
        """The tokens to hand out by themselves; see Request.marks."""
        return self._marks.ids

    def opens_thinking(self, prompt_text: str) -> bool:
        """Whether a rendered prompt ends inside thinking, so that the answer begins there."""
        return self.thinking is not None and prompt_text.rstrip().endswith(self.thinking.opening)

    def thinking_plan(self, *, inside: bool, budget: int | None) -> Thinking | None:
        """What the engine has to know to end thinking; None for a model that has none."""
        if self.thinking is None:
            return None
        return Thinking(inside=inside, start_id=self.thinking.start_id, end_ids=self.thinking.end_ids, budget=budget)

    def parser(self, *, inside_thinking: bool, tools: Sequence[Tool], formed: bool = False) -> AnswerParser:
        """For one answer. Without tools, calls are not looked for, and what looks like one is text.

        Where the text has a form that the request asks for, calls stand before any text or nowhere.
        """
        form = self._form if tools else None
        return AnswerParser(
            self._marks, self._tags, form, inside_thinking=inside_thinking, tools=tools, calls_first=formed
        )

    def answer_grammar(self, rule: str, *, inside_thinking: bool) -> str:
        """A whole grammar: thinking as the model likes, then exactly `rule`."""
        return self._grammars.answer(rule, inside_thinking=inside_thinking)

    def tool_grammar(
        self,
        tools: Sequence[Tool],
        choice: ToolChoice,
        *,
        parallel: bool,
        inside_thinking: bool,
        rule: str | None = None,
    ) -> ToolGrammar | None:
        """A whole grammar for what may be called; None where the model has no way to call.

        `rule` is the form of an answer that is no call. Raises RequestError for a strict schema.
        """
        return self._grammars.calls(tools, choice, parallel=parallel, inside_thinking=inside_thinking, rule=rule)

    def _think_tags(self, tags: tuple[str, str], tokenizer: Tokenizer) -> ThinkTags:
        start, end = (self._marks.token(self._marks.in_stream(tag)) for tag in tags)
        end_ids = tuple(tokenizer.encode(tags[1])) if end is None else (end,)
        return ThinkTags(tags[0], tags[1], start, end_ids)


def answer_format(template_source: str | None, tokenizer: Tokenizer) -> AnswerFormat:
    """What a chat template and a vocabulary tell of how their model answers."""
    source = template_source or ""
    form = tool_format(source)
    in_words = form is None and template_source is not None
    return AnswerFormat(think_tags(source), HERMES if in_words else form, tokenizer, tools_in_words=in_words)
