"""Added tokens in a text, found as the library `tokenizers` finds them, flags and all (its added_vocabulary.rs).

Our own search serves chats too: text that carries a guard character is quoted, and a quoted token is plain text.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer, models

from engine.text.tokenizer_rules import TokenFlags


class SpecialTokens:
    """A set of token texts that are searched for together, in time linear in the text."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = frozenset(texts) - {""}
        by_first: dict[str, set[int]] = {}
        for text in self._texts:
            by_first.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(lengths, reverse=True) for first, lengths in by_first.items()}
        self._firsts = re.compile("[" + "".join(map(re.escape, by_first)) + "]" if by_first else r"(?!)")
        self._heads = frozenset(text[:cut] for text in self._texts for cut in range(1, len(text)))
        self._tails = frozenset(text[cut:] for text in self._texts for cut in range(1, len(text)))
        self._longest = max(map(len, self._texts), default=0)

    def guard(self, text: str, guard: str, edges: bool = True) -> str:
        """Put a guard character into every special token of the text, and where one could begin or end at its edges.

        Overlapping tokens each get theirs, so no substring of the result is a special token, and nor is one made by
        writing other text before or after it. White space at the edges is passed over: templates trim it.
        Tokens of one character cannot hold a guard and are left alone.
        """
        cuts = {start + 1 for start, token in self.occurrences(text) if len(token) > 1}
        if edges:
            cuts |= self._open_edges(text)
        bounds = [0, *sorted(cuts), len(text)]
        return guard.join(text[a:b] for a, b in pairwise(bounds)) if cuts else text

    def _open_edges(self, text: str) -> set[int]:
        """The ends of the text, white space apart, that other text could complete to a special token."""
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        sizes = range(1, min(self._longest, end - start + 1))
        opens = any(text[start : start + size] in self._tails for size in sizes)
        closes = any(text[end - size : end] in self._heads for size in sizes)
        return ({start} if opens else set()) | ({end} if closes else set())

    def occurrences(self, text: str) -> Iterator[tuple[int, str]]:
        """Start and text of the longest special token at every position that has one."""
        for match in self._firsts.finditer(text):
            start = match.start()
            for length in self._lengths[text[start]]:
                if text[start : start + length] in self._texts:
                    yield start, text[start : start + length]
                    break


# Unicode's White_Space, which str.isspace() exceeds by the separators U+001C to U+001F.
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_PROBE = "x"
_KNOWN_CHARACTERS = 1 << 12


class AddedTokens:
    """Tokens without the flag `normalized` are looked for first, the others in what is left."""

    def __init__(self, flags: Mapping[str, TokenFlags]) -> None:
        first = {text: each for text, each in flags.items() if not each.normalized}
        then = {text: each for text, each in flags.items() if each.normalized}
        self._stages = [_Stage(stage) for stage in (first, then) if stage]

    def split(self, text: str, guard: str = "") -> list[str]:
        """Runs of plain text and tokens in turn: run, token, run, ..., token, run; guards count as nothing."""
        pieces = [text]
        for stage in self._stages:
            pieces = [
                part
                for place, piece in enumerate(pieces)
                for part in ([piece] if place % 2 else stage.split(piece, guard))
            ]
        return pieces


class _Stage:
    def __init__(self, flags: Mapping[str, TokenFlags]) -> None:
        self._flags = flags
        self._tokens = SpecialTokens(flags.keys())

    def split(self, text: str, guard: str) -> list[str]:
        pieces: list[str] = []
        done = searched = 0
        for start, token in self._tokens.occurrences(text):
            if start < searched:
                continue  # a part of the token before it
            end = searched = start + len(token)
            flags = self._flags[token]
            if flags.single_word and _touches_word(text, start, end, guard):
                continue
            if flags.lstrip:
                start = max(_before_white(text, start, guard), done)
            if flags.rstrip:
                end = _after_white(text, end, guard)
            pieces += (text[done:start], token)
            done = end
        return [*pieces, text[done:]]


def _before_white(text: str, place: int, guard: str) -> int:
    while place and (text[place - 1] in _WHITE or text[place - 1] == guard):
        place -= 1
    return place


def _after_white(text: str, place: int, guard: str) -> int:
    while place < len(text) and (text[place] in _WHITE or text[place] == guard):
        place += 1
    return place


def _touches_word(text: str, start: int, end: int, guard: str) -> bool:
    """Whether a letter, a digit or the like stands right before or after."""
    if guard:
        while start and text[start - 1] == guard:
            start -= 1
        while text[end : end + 1] == guard:
            end += 1
    return any(map(_is_word, (*text[start - 1 : start], *text[end : end + 1])))


@lru_cache(_KNOWN_CHARACTERS)
def _is_word(character: str) -> bool:
    """The library's own word, for it knows other versions of Unicode than Python does."""
    return len(_prober().encode(character + _PROBE).ids) == 0


@cache
def _prober() -> Tokenizer:
    """Finds one token, unless the token stands beside a word's character, and nothing else."""
    prober = Tokenizer(models.BPE({}, []))
    prober.add_tokens([AddedToken(_PROBE, single_word=True, normalized=False)])
    return prober
