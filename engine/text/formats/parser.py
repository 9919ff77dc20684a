"""Reads an answer as it comes: thinking, text and calls. One machine for whole answers and streams.

However the text is cut into pieces, the parts say the same. What only looks like a call (no declared tool is named, or
the format is broken before the name is complete) is text. White space around calls is dropped, and so are the newlines
before and after thinking. The end of the answer closes nothing: thinking stays thinking, and a call stays open.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from engine.api.request import Token
from engine.text.formats.calls import CallWriter, ToolFormat
from engine.text.formats.marks import Marks, split_at_mark
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning, Tool
from engine.text.formats.reader import SPACE, SPACES, Reader, Steps, Tags


class AnswerParser:
    """The parser of one answer."""

    def __init__(
        self,
        marks: Marks,
        thinking: tuple[str, str] | None,
        form: ToolFormat | None,
        *,
        inside_thinking: bool,
        tools: Sequence[Tool] = (),
        calls_first: bool = False,
    ) -> None:
        """All tags are those of the stream. `form` is None where calls are not looked for.

        With `calls_first`, calls stand before any text or nowhere.
        """
        self._marks = marks
        self._reader = Reader()
        self._writer = CallWriter({tool.name: tool for tool in tools}, marks, self._reader, self._emit)
        self._parts: list[Part] = []
        self._thinking = thinking
        self._form = form
        self._openings = () if form is None else form.openings
        self._inside = inside_thinking and thinking is not None
        self._space: list[str] = []  # held back: dropped before a call
        self._line_begins = True
        self._calls_first = calls_first
        self.reasoning_tokens = 0
        self._steps = self._answer()
        next(self._steps, None)

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return self._writer.count

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        """Take the next tokens; return the parts that became certain."""
        for token in tokens:
            was_inside = self._inside
            text = (self._marks.character(token.id) or token.text) if token.is_mark else token.text
            if text:
                self._reader.feed(text)
                next(self._steps, None)
            self.reasoning_tokens += was_inside or self._inside
        return self._taken()

    def finish(self) -> list[Part]:
        """The answer has ended: return the rest."""
        self._reader.end()
        for _ in self._steps:
            raise AssertionError("nothing waits after the end")
        return self._taken()

    def _taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts if len(parts) < 2 else list(_merged(parts))

    def _emit(self, part: Part) -> None:
        self._parts.append(part)

    def _answer(self) -> Steps[None]:
        if self._inside:
            yield from self._reason()
        elif self._thinking is not None:
            yield from self._maybe_reason()
        if self._form is not None and self._form.bare and not self.calls:
            yield from self._maybe_bare_calls()
        yield from self._content()

    def _maybe_reason(self) -> Steps[None]:
        """Think, if the answer begins with the tag for it."""
        assert self._thinking is not None
        self._reader.record()
        yield from self._reader.skip_space()
        if (yield from self._reader.one_of(self._thinking[:1])):
            self._reader.forget()
            yield from self._reason()
        else:
            self._say(self._reader.recorded())

    def _reason(self) -> Steps[None]:
        """Think up to the closing tag, or to a call at the beginning of a line."""
        assert self._thinking is not None
        opening, closing = self._thinking
        self._inside = True
        self._line_begins = True
        yield from self._skip_newlines()
        if (yield from self._reader.one_of((opening,))):  # the prompt had opened it, and the model does so again
            yield from self._skip_newlines()
        tags = Tags(closing, *self._openings)
        while (found := (yield from self._reader.copy_until(tags, self._think))) is not None:
            if found == closing:
                self._inside = False
                yield from self._skip_newlines()
                return
            if self._line_begins:
                yield from self._calls(found, self._think)
                if not self._inside:
                    return
            else:
                self._think(found)

    def _maybe_bare_calls(self) -> Steps[None]:
        """Call, if the answer begins like the JSON of a call."""
        self._reader.record()
        if (yield from self._reader.skip_space()) == "{":
            yield from self._calls(self._reader.recorded(), self._say)
        else:
            self._say(self._reader.recorded())

    def _content(self) -> Steps[None]:
        """Read text, and the tag after it."""
        marked = [tag for tag in self._thinking or () if not split_at_mark(tag)[0]]
        tags = Tags(*marked, *self._openings)
        if self._calls_first and self._openings and not (yield from self._next_begins(tags)):
            tags = Tags(*marked)
        while (found := (yield from self._reader.copy_until(tags, self._say))) is not None:
            if found in self._openings:
                yield from self._calls(found, self._say)
            elif self._thinking is not None and found == self._thinking[0]:
                yield from self._reason()
        if not self.calls:
            self._say_space()

    def _next_begins(self, tags: Tags) -> Steps[bool]:
        """Whether one of the tags comes next, after white space; what is read is said."""
        yield from self._reader.copy_while(SPACES, self._say)
        return (yield from self._reader.next_of(tags.tags)) is not None

    def _calls(self, found: str, no_call: Callable[[str], None]) -> Steps[None]:
        """Read calls; what turns out to be none is handed to `no_call`."""
        assert self._form is not None
        before = self.calls
        rest = yield from self._form.read(found, self._reader, self._writer)
        if self.calls > before:
            self._inside = False
            self._space.clear()
            no_call = self._say
        if rest:
            no_call(rest)

    def _skip_newlines(self) -> Steps[None]:
        while (yield from self._reader.peek()) == "\n":
            self._reader.take()

    def _think(self, text: str) -> None:
        self._line_begins = text.endswith("\n")
        self._emit(Reasoning(self._marks.plain(text)))

    def _say(self, text: str) -> None:
        """Say the text, and hold back white space at its end where a call may follow."""
        text = self._marks.plain(text)
        said = text.rstrip(SPACE) if self._form is not None else text
        if said:
            self._say_space()
            self._emit(Content(said))
        if len(said) < len(text):
            self._space.append(text[len(said) :])

    def _say_space(self) -> None:
        if self._space:
            self._emit(Content("".join(self._space)))
        self._space.clear()


def _merged(parts: Sequence[Part]) -> Iterator[Part]:
    """The same with neighbours of one kind as one."""
    for _, group in groupby(parts, lambda part: (type(part), getattr(part, "index", 0))):
        first, *more = group
        if isinstance(first, Reasoning | Content | CallArguments):
            text = "".join([first.text, *(part.text for part in more if not isinstance(part, CallBegin | CallEnd))])
            yield replace(first, text=text)
        else:
            yield first
            yield from more
