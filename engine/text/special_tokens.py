"""Finding special tokens in text, and guarding those that are quoted."""

import re
from collections.abc import Collection, Iterator
from itertools import pairwise


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
