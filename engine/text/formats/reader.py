"""The stream of an answer as its parser reads it: piece by piece, in time linear in its length.

Every method that may have to wait for more text is a generator, which yields where it waits. A tag that may have begun
at the end of a piece is held back until the next piece decides.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
Write = Callable[[str], None]

SPACE = " \t\r\n"
SPACES = re.compile(f"[{SPACE}]+")
_NOTHING = re.compile(r"(?!)")


class Tags:
    """Some tags to look for at once; none begins another."""

    def __init__(self, *tags: str) -> None:
        self.tags = tags
        self._pattern = re.compile("|".join(map(re.escape, tags)) or r"(?!)")
        self._beginnings = frozenset(tag[:size] for tag in tags for size in range(1, len(tag)))
        self._longest = max(map(len, self._beginnings), default=0)

    def search(self, text: str, start: int) -> re.Match[str] | None:
        """The first tag from there on."""
        return self._pattern.search(text, start)

    def held(self, text: str, start: int) -> int:
        """How many characters at the end, after `start`, may be the beginning of a tag."""
        for size in range(min(self._longest, len(text) - start), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0


class Reader:
    """What has come and is not read yet. It can record what is read, for text that turns out to be something else."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._record: list[str] | None = None
        self._ended = False

    def feed(self, text: str) -> None:
        """More has come."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """Nothing more will come: no method waits any more."""
        self._ended = True

    def record(self, begun: str = "") -> None:
        """Keep what is read from here on, after what was read just before."""
        self._record = [begun]

    def forget(self) -> None:
        """Stop recording."""
        self._record = None

    def recorded(self) -> str:
        """What was read since `record`; stops recording."""
        text = "".join(self._record or ())
        self._record = None
        return text

    def copy_until(self, tags: Tags, write: Write, *, rest: Write | None = None) -> Steps[str | None]:
        """Hand the text before the first tag to `write`, read the tag and return it; None at the answer's end.

        `rest` gets what may be a tag that the answer's end cuts off, `write` where there is no `rest`.
        """
        while True:
            found = tags.search(self._text, self._at)
            if found is not None:
                self._copy_to(found.start(), write)
                self._take(found.end())
                return found[0]
            self._copy_to(len(self._text) - tags.held(self._text, self._at), write)
            if self._ended:
                self._copy_to(len(self._text), rest or write)
                return None
            yield

    def copy_while(self, pattern: re.Pattern[str], write: Write) -> Steps[str]:
        """Hand what matches (one class of characters, repeated) to `write`; return the next character, unread."""
        while True:
            found = pattern.match(self._text, self._at)
            if found is not None:
                self._copy_to(found.end(), write)
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            yield

    def skip_space(self) -> Steps[str]:
        """Read white space; return the character after it, unread, which is empty at the end."""
        return self.copy_while(SPACES, drop)

    def peek(self) -> Steps[str]:
        """The next character, unread; empty at the end."""
        return self.copy_while(_NOTHING, drop)

    def take(self) -> str:
        """Read the one character that was just looked at."""
        character = self._text[self._at]
        self._take(self._at + 1)
        return character

    def one_of(self, tags: Sequence[str]) -> Steps[str | None]:
        """Read the tag that comes next and return it; where none of these does, read nothing."""
        tag = yield from self.next_of(tags)
        if tag is not None:
            self._take(self._at + len(tag))
        return tag

    def next_of(self, tags: Sequence[str]) -> Steps[str | None]:
        """The tag that comes next, unread; None where none of these does."""
        while True:
            for tag in tags:
                if self._text.startswith(tag, self._at):
                    return tag
            rest = self._text[self._at : self._at + max(map(len, tags))]
            if self._ended or not any(tag.startswith(rest) for tag in tags):
                return None
            yield

    def _copy_to(self, end: int, write: Write) -> None:
        if end > self._at:
            write(self._take(end))

    def _take(self, end: int) -> str:
        text = self._text[self._at : end]
        self._at = end
        if self._record is not None:
            self._record.append(text)
        return text


def drop(text: str) -> None:
    """What is read is not wanted."""
