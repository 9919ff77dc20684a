"""SentencePiece's merges equal those of a slow and obvious twin, for any vocabulary."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.text.sentencepiece import SentencePiece
from engine.text.vocabulary import Vocabulary
from tests.engine.text.vocabularies import tiny_spm_metadata

SYMBOLS = "ab▁é"
PIECES = st.dictionaries(
    st.text(SYMBOLS, min_size=1, max_size=4), st.sampled_from([-3.0, -2.0, -1.0, 0.0, 0.5]), min_size=1, max_size=25
)


def naive(pieces: dict[str, float], text: str) -> list[str]:
    """Merge the best-scored pair of neighbours, the leftmost of equals, until no pair is a piece."""
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [(-pieces[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in pieces]
        if not pairs:
            break
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return [
        name
        for symbol in symbols
        for name in ([symbol] if symbol in pieces else [f"<0x{byte:02X}>" for byte in symbol.encode()])
    ]


@given(PIECES, st.text("ab é", max_size=30))
def test_merges_equal_the_naive_ones(pieces: dict[str, float], text: str) -> None:
    vocabulary = Vocabulary.from_metadata(tiny_spm_metadata(pieces))
    ids = SentencePiece(vocabulary).encode(text)
    assert [vocabulary.tokens[token] for token in ids] == naive(pieces, text)


def test_a_long_word_is_merged_whole() -> None:
    pieces = {"a": -1.0, "aa": -2.0, "aaaa": -3.0}
    vocabulary = Vocabulary.from_metadata(tiny_spm_metadata(pieces))
    ids = SentencePiece(vocabulary).encode("a" * 1001)
    assert [vocabulary.tokens[token] for token in ids] == ["aaaa"] * 250 + ["a"]


def test_unknown_characters_become_their_bytes() -> None:
    vocabulary = Vocabulary.from_metadata(tiny_spm_metadata({"a": -1.0}))
    model = SentencePiece(vocabulary)
    ids = model.encode("a\x00中")
    assert b"".join(model.piece_bytes(vocabulary.tokens[token]) for token in ids) == "a\x00中".encode()
    assert len(ids) == 5
