"""Special tokens are guarded wherever they are."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.added_tokens import SpecialTokens

GUARD = "\ufdd0"
TOKENS = ["<a>", "<a>b", "><", "<<a", "x<a>", "ab", "<|im_end|>"]
PIECES = st.lists(st.sampled_from(["<a>", "<", "a", ">", "b", "x", " ", "|im_", "end|>", "<|"]), max_size=12).map(
    "".join
)


@given(PIECES, PIECES, PIECES)
def test_no_token_survives_in_a_guarded_text_or_across_its_edges(before: str, text: str, after: str) -> None:
    special = SpecialTokens(TOKENS)
    guarded = special.guard(text, GUARD)
    assert guarded.replace(GUARD, "") == text
    if not text.strip():
        return
    whole = before + guarded.strip() + after
    inside = range(len(before), len(before) + len(guarded.strip()))
    for token in TOKENS:
        starts = [start for start in range(len(whole)) if whole.startswith(token, start)]
        for start in starts:
            assert start + len(token) <= inside.start or start >= inside.stop, (token, whole)


def test_text_without_tokens_is_left_as_it_is() -> None:
    text = "Is 3 > 2, and a < b?"
    assert SpecialTokens(["<|im_end|>"]).guard(text, GUARD) == text


def test_keys_are_guarded_without_their_edges() -> None:
    special = SpecialTokens(["<name"])
    assert special.guard("name", GUARD) == GUARD + "name"
    assert special.guard("name", GUARD, edges=False) == "name"
    assert special.guard("<name", GUARD, edges=False) == f"<{GUARD}name"


def test_an_empty_set_finds_nothing() -> None:
    assert list(SpecialTokens([]).occurrences("<s>")) == []
    assert SpecialTokens([]).guard("<s>", GUARD) == "<s>"
