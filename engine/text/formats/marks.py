"""The tags of a format in the words of one vocabulary.

Where a tag is a single token, only that token is the tag: the same letters from other tokens are text. Such a token is
a mark. In the stream that the parser reads, each mark is one surrogate, a code point that no text can hold.
"""

import json
import re
from collections.abc import Iterable

from engine.text.tokenizer import Tokenizer

SURROGATES = "\ud800-\udfff"
_FIRST = 0xDC00
_MARK = re.compile(f"[{SURROGATES}]")


class Marks:
    """Translates between tags as people write them, the parser's stream, tokens and grammars."""

    def __init__(self, names: Iterable[str], tokenizer: Tokenizer) -> None:
        special = tokenizer.control_tokens | tokenizer.user_tokens
        known = sorted({name for name in names if name in special}, key=lambda name: (-len(name), name))
        self._characters = {name: chr(_FIRST + place) for place, name in enumerate(known)}
        self._names = {character: name for name, character in self._characters.items()}
        self._ids = {self._characters[name]: tokenizer.encode(name, parse_special=True)[0] for name in known}
        alike = {character: tokenizer.ids_alike(token) for character, token in self._ids.items()}
        self._by_id = {token: character for character, tokens in alike.items() for token in tokens}

    @property
    def ids(self) -> frozenset[int]:
        """The tokens that the engine has to hand out as marks."""
        return frozenset(self._by_id)

    def character(self, token: int) -> str | None:
        """What stands for the token in the stream."""
        return self._by_id.get(token)

    def token(self, tag: str) -> int | None:
        """The token that is the whole tag, if there is one; the tag as it is in the stream."""
        return self._ids.get(tag)

    def in_stream(self, tag: str) -> str:
        """The tag as the parser meets it. Longer marks win."""
        for name, character in self._characters.items():
            tag = tag.replace(name, character)
        return tag

    def plain(self, text: str) -> str:
        """A text of the stream as people read it."""
        return _MARK.sub(lambda mark: self._names[mark[0]], text)

    def lark(self, tag: str) -> str:
        """A tag of the stream as a sequence in a grammar."""
        pieces = re.split(f"([{SURROGATES}])", tag)
        terms = [self._lark_piece(piece) for piece in pieces if piece]
        return " ".join(terms) or '""'

    def _lark_piece(self, piece: str) -> str:
        return f"<[{self._ids[piece]}]>" if piece in self._ids else json.dumps(piece, ensure_ascii=False)


def split_at_mark(tag: str) -> tuple[str, str]:
    """The text before the tag's first mark, and the rest from that mark on (nothing where it has no mark)."""
    found = _MARK.search(tag)
    return (tag, "") if found is None else (tag[: found.start()], tag[found.start() :])
