"""How one model writes its answers: the door to their parsing and to the grammars that limit them."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.formats.answer_grammar import AnswerGrammars
from engine.formats.calls import in_stream
from engine.formats.detection import KnownFormat, tag_tokens, think_tags, tool_format
from engine.formats.marks import Marks
from engine.formats.parser import AnswerParser
from engine.formats.tools import Tool, ToolChoice
from engine.request import Thinking
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """What opens and closes thinking, as people read it, and as tokens."""

    opening: str
    closing: str
    start_id: int | None  # None: not one token
    end_ids: tuple[int, ...]


class AnswerFormat:
    """Read-only; one a model. Without a template there is neither thinking nor tools."""

    def __init__(self, tags: tuple[str, str] | None, form: KnownFormat | None, tokenizer: Tokenizer) -> None:
        """`form` has its tags as people read them."""
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

    def parser(self, *, inside_thinking: bool, tools: Sequence[Tool] | None) -> AnswerParser:
        """For one answer. Without tools, calls are not looked for, and what looks like one is text."""
        form = self._form if tools else None
        return AnswerParser(self._marks, self._tags, form, inside_thinking=inside_thinking, tools=tools or ())

    def answer_grammar(self, rule: str, *, inside_thinking: bool) -> str:
        """A whole grammar: thinking as the model likes, then exactly `rule`."""
        return self._grammars.answer(rule, inside_thinking=inside_thinking)

    def tool_grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool, inside_thinking: bool
    ) -> str | None:
        """A whole grammar for what may be called; None where the model has no way to call. May raise RequestError."""
        return self._grammars.calls(tools, choice, parallel=parallel, inside_thinking=inside_thinking)

    def _think_tags(self, tags: tuple[str, str], tokenizer: Tokenizer) -> ThinkTags:
        start, end = (self._marks.token(self._marks.in_stream(tag)) for tag in tags)
        end_ids = tuple(tokenizer.encode(tags[1])) if end is None else (end,)
        return ThinkTags(tags[0], tags[1], start, end_ids)


def answer_format(template_source: str | None, tokenizer: Tokenizer) -> AnswerFormat:
    """What a chat template and a vocabulary tell of how their model answers."""
    source = template_source or ""
    return AnswerFormat(think_tags(source), tool_format(source), tokenizer)
