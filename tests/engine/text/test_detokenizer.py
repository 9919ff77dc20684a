"""Streamed text is the same however the tokens arrive, and never a broken character."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer
from tests.engine.text.vocabularies import tokenizer


class Pieces:
    """A tokenizer whose token i writes the i-th piece."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token]


@given(st.lists(st.binary(max_size=4), max_size=12), st.lists(st.integers(0, 12), max_size=6))
def test_any_split_of_any_tokens_gives_the_same_text(pieces: list[bytes], cuts: list[int]) -> None:
    detokenizer = Detokenizer(Pieces(pieces))
    edges = [0, *sorted(min(cut, len(pieces)) for cut in cuts), len(pieces)]
    texts = [detokenizer.push(range(a, b)) for a, b in pairwise(edges)]
    assert "".join(texts) + detokenizer.flush() == b"".join(pieces).decode(errors="replace")


@given(st.text(max_size=20))
def test_whole_characters_never_show_a_replacement(text: str) -> None:
    data = text.encode(errors="replace")
    detokenizer = Detokenizer(Pieces([bytes([byte]) for byte in range(256)]))
    texts = [detokenizer.push([byte]) for byte in data]
    assert "".join(texts) == data.decode()
    assert detokenizer.flush() == ""


def test_a_character_is_held_until_its_last_byte() -> None:
    detokenizer = Detokenizer(Pieces([b"a\xf0\x9f", b"\x98", b"\x80b", b"\xe4"]))
    assert [detokenizer.push([token]) for token in range(4)] == ["a", "", "\U0001f600b", ""]
    assert detokenizer.flush() == "\ufffd"


def test_leading_spaces_of_an_answer_are_kept() -> None:
    own = tokenizer("llama-spm")
    detokenizer = Detokenizer(own)
    assert detokenizer.push(own.encode("Paris")) + detokenizer.flush() == " Paris"


def test_control_tokens_write_nothing() -> None:
    own = tokenizer("smollm")
    assert Detokenizer(own).push([1, *own.encode("hi"), 2]) == "hi"


def test_it_says_whether_it_holds_a_character_back() -> None:
    detokenizer = Detokenizer(Pieces([b"a\xe2", b"\x82", b"\xac"]))
    holding = []
    for token in (0, 1, 2, 0):
        detokenizer.push([token])
        holding.append(detokenizer.is_holding)
    assert holding == [True, True, False, True]
    assert detokenizer.flush() == "\ufffd" and not detokenizer.is_holding
