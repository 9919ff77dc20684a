"""Added tokens in a text, found as the library `tokenizers` finds them, flags and all (its added_vocabulary.rs).

Our own search serves chats too: what a guard character stands in is quoted, and quoted tokens are plain text.
"""

from collections.abc import Mapping
from functools import cache, lru_cache

from tokenizers import AddedToken, Tokenizer, models

from engine.text.special_tokens import SpecialTokens
from engine.text.tokenizer_rules import TokenFlags

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
