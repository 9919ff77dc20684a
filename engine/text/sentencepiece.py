"""SentencePiece's BPE: neighbouring symbols that form a token are merged, the best score first, ties to the left.

Spaces are written as U+2581. Symbols that are no token in the end become byte tokens (`<0x0A>`).
"""

import re
from functools import lru_cache
from heapq import heappop, heappush

from engine.errors import ModelFileError
from engine.text.vocabulary import TokenType, Vocabulary

SPACE = "\u2581"
BYTE_VALUES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
_WORDS = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_CACHED_WORDS = 1 << 15
_LONGEST_CACHED_WORD = 64  # characters; longer ones are rare, and would let a request fill the memory


class SentencePiece:
    """Encodes plain text: control tokens have no place in its vocabulary, so no text can give one."""

    adds_bos = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        mergeable = (TokenType.NORMAL, TokenType.UNUSED, TokenType.UNDEFINED)
        self._ids = vocabulary.of_type(*mergeable)
        self._scores = vocabulary.scores
        self._byte_ids = byte_ids(vocabulary)
        # No token goes on over the start of a new word, so no merge does: words can be merged one by one.
        self._by_words = not any(SPACE in text.lstrip(SPACE) for text in self._ids)
        self._cached_word = lru_cache(_CACHED_WORDS)(self._merge)

    def encode(self, text: str, *, at_start: bool = True, quoted: bool = False) -> list[int]:
        """Ids of a run of plain text, wherever it stands."""
        text = text.replace(" ", SPACE)
        if not self._by_words:
            return self._merge(text)
        ids: list[int] = []
        for match in _WORDS.finditer(text):  # in steps that other threads can run between
            word = match.group()
            ids += self._cached_word(word) if len(word) <= _LONGEST_CACHED_WORD else self._merge(word)
        return ids

    def piece_bytes(self, piece: str) -> bytes:
        return written_bytes(piece)

    def _merge(self, text: str) -> list[int]:
        """Symbols are runs text[i:ends[i]]; a symbol that was merged into its left neighbour has ends[i] == 0."""
        count = len(text)
        ends = list(range(1, count + 1))
        before = list(range(-1, count - 1))
        ids, scores = self._ids, self._scores
        queue: list[tuple[float, int, int, int]] = []  # (-score, left start, right start, right end)
        for left in range(count - 1):
            token = ids.get(text[left : left + 2])
            if token is not None:
                heappush(queue, (-scores[token], left, left + 1, left + 2))
        while queue:
            _, left, middle, end = heappop(queue)
            if ends[left] != middle or ends[middle] != end:
                continue  # one of the two was merged elsewhere since
            ends[left], ends[middle] = end, 0
            if end < count:
                before[end] = left
                token = ids.get(text[left : ends[end]])
                if token is not None:
                    heappush(queue, (-scores[token], left, end, ends[end]))
            if left:
                start = before[left]
                token = ids.get(text[start:end])
                if token is not None:
                    heappush(queue, (-scores[token], start, left, end))
        return self._collect(text, ends)

    def _collect(self, text: str, ends: list[int]) -> list[int]:
        output: list[int] = []
        start = 0
        while start < len(text):
            symbol = text[start : ends[start]]
            token = self._ids.get(symbol)
            if token is None:
                output += [self._byte_ids[byte] for byte in symbol.encode()]
            else:
                output.append(token)
            start = ends[start]
        return output


def written_bytes(piece: str) -> bytes:
    """What a token of this kind of vocabulary writes."""
    return BYTE_VALUES.get(piece) or piece.replace(SPACE, " ").encode()


def byte_ids(vocabulary: Vocabulary) -> list[int]:
    """The byte tokens' ids in their order. Raises ModelFileError where one is missing."""
    try:
        return [vocabulary.ids[f"<0x{byte:02X}>"] for byte in range(256)]
    except KeyError as error:
        raise ModelFileError(
            f"The model file's tokenizer.ggml.tokens lacks the byte token {error}; use another file of this model."
        ) from None
