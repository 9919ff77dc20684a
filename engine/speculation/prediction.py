"""Follows an answer in the text that its request predicted, and guesses that it goes on there."""

from bisect import bisect_right
from collections import defaultdict

from engine.speculation.guess import NOTHING, Guess, looked_up
from engine.speculation.ngram import SIZES, agreement


class PredictionFollower:
    """A place in the predicted tokens. Where the answer leaves them, its last tokens are looked for in them."""

    def __init__(self, prediction: tuple[int, ...], prompt_tokens: int) -> None:
        self._prediction = prediction
        self._places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)  # that follow each run, ascending
        for size in SIZES:
            for place in range(size, len(prediction)):
                self._places[prediction[place - size : place]].append(place)
        self._followed = prompt_tokens  # tokens of the sequence that were compared
        self._place: int | None = 0  # of the prediction, where the next token of the answer should be
        self._last_place = 0  # the last that was known
        self._right = bytearray(len(prediction))  # 1: the answer had this token where it was expected

    @property
    def accepted(self) -> int:
        """How many of the predicted tokens have come where they were expected."""
        return sum(self._right)

    def follow(self, tokens: list[int]) -> None:
        """Compare the tokens that the sequence has got since the last call."""
        for end in range(self._followed, len(tokens)):
            self._take(tokens, end)
        self._followed = len(tokens)

    def _take(self, tokens: list[int], end: int) -> None:
        place = self._place
        if place is not None and place < len(self._prediction) and self._prediction[place] == tokens[end]:
            self._right[place] = 1
            self._place = self._last_place = place + 1
        else:
            self._place = self._found(tokens, end + 1)
            self._last_place = self._last_place if self._place is None else self._place

    def _found(self, tokens: list[int], end: int) -> int | None:
        """Where the prediction goes on as tokens[:end] end: behind the last place if it does, else before it."""
        for size in SIZES:
            places = self._places.get(tuple(tokens[max(0, end - size) : end]))
            if places:
                return places[min(bisect_right(places, self._last_place), len(places) - 1)]
        return None

    def guess(self, tokens: list[int], most: int) -> Guess:
        """As Drafter has it."""
        self.follow(tokens)
        if self._place is None or self._place >= len(self._prediction):
            return NOTHING
        agreed = agreement(tokens, len(tokens), self._prediction, self._place)
        return looked_up(self._prediction[self._place : self._place + most], agreed, from_prediction=True)
