"""A prompt is its token ids; the prefix cache tells spans apart by their content."""

from engine.api.prompt import Prompt, Span


def test_a_prompt_is_the_sequence_of_its_tokens() -> None:
    prompt = Prompt((5, 6, 7))
    assert (len(prompt), list(prompt), prompt[0], prompt[1:]) == (3, [5, 6, 7], 5, (6, 7))
    assert not Prompt(()) and prompt == Prompt((5, 6, 7)) != Prompt((5, 6, 7), (Span(0, 1, b"a"),))


def test_without_spans_the_cache_keys_are_the_tokens_and_no_copy() -> None:
    tokens = [5, 6, 7, 8]
    assert Prompt((5, 6, 7)).cache_keys(tokens) is tokens


def test_in_a_span_the_content_and_the_place_decide_the_keys() -> None:
    def keys(digest: bytes, start: int = 1) -> list[int]:
        return Prompt((5, 0, 0, 6, 7), (Span(start, 2, digest),)).cache_keys([5, 0, 0, 6, 7, 8])

    one, other = keys(b"one"), keys(b"other")
    assert one[0] == other[0] == 5 and one[3:] == other[3:] == [6, 7, 8]
    assert len({*one[1:3], *other[1:3]}) == 4 and all(-(2**63) <= key < 0 for key in one[1:3])
    assert keys(b"one") == one and keys(b"one", start=2)[2:4] == one[1:3]
