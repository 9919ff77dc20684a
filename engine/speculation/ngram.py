"""Guesses by looking up where the last tokens of a sequence occurred before: what followed there may follow here."""

from collections.abc import Sequence as Tokens

from engine.speculation.guess import NOTHING, Guess, looked_up

SIZES = (3, 2)  # of the runs of tokens that are looked up, the first that is found counts
READ_AT_ONCE = 4096  # tokens that a step's guess reads at most: a long prompt is read over several steps
MOST_COMPARED = 32  # tokens back to which an occurrence is compared with the end of the text


class TextIndex:
    """Where each run of tokens was last followed by another, in a text that grows."""

    def __init__(self) -> None:
        self._places: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in SIZES}
        self._read = 0

    def read(self, tokens: Tokens[int], most: int = READ_AT_ONCE) -> None:
        """Take in up to `most` more tokens of the text, which begins as it did before."""
        end = min(len(tokens), self._read + most)
        for size, places in self._places.items():
            first = max(self._read, size)  # places that follow a run: the end of the text is none of them
            if first + 1 == end:  # as in each step of an answer, where it takes a third of the time
                places[tuple(tokens[first - size : first])] = first
            elif first < end:
                columns = (tokens[first - size + column : end - size + column] for column in range(size))
                places.update(zip(zip(*columns, strict=True), range(first, end), strict=True))
        self._read = end

    def find(self, tokens: Tokens[int]) -> int | None:
        """The last place before whose tokens are those at the end of the text."""
        for size, places in self._places.items():
            place = places.get(tuple(tokens[-size:]))
            if place is not None:
                return place
        return None


class LookupDrafter:
    """Guesses from the sequence's own prompt and answer."""

    def __init__(self) -> None:
        self._index = TextIndex()

    def guess(self, tokens: list[int], most: int) -> Guess:
        """As Drafter has it."""
        self._index.read(tokens)
        place = self._index.find(tokens)
        if place is None:
            return NOTHING
        period = len(tokens) - place  # where the text ends, it is taken to go round
        following = tokens[place : place + most]
        found = [following[ahead % period] for ahead in range(most)] if len(following) < most else following
        return looked_up(tuple(found), agreement(tokens, len(tokens), tokens, place))


def agreement(text: Tokens[int], end: int, other: Tokens[int], place: int) -> int:
    """How many tokens before text[end] equal those before other[place], MOST_COMPARED at most."""
    most = min(end, place, MOST_COMPARED)
    for back in range(1, most + 1):
        if text[end - back] != other[place - back]:
            return back - 1
    return most
