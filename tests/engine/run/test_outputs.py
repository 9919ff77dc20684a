"""From tokens to text events and ends."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.request import FinishReason, TextEvent, Token, TokenLogprob
from engine.run.outputs import DEADLINE, RequestOutput
from engine.text.tokenizer import Tokenizer
from tests.engine.scripted import END_ID, LetterTokenizer, a_request, letter_tokenizer, letters

EURO = (27, 28, 29)


def run(
    tokens: tuple[int, ...], *, max_new_tokens: int = 100, stop: tuple[str, ...] = (), ignore_eos: bool = False
) -> tuple[list[TextEvent], FinishReason | None]:
    """Push tokens until the end; the events and the reason."""
    output = RequestOutput(a_request(stop=stop, ignore_eos=ignore_eos), letter_tokenizer(), max_new_tokens)
    events = []
    for token in tokens:
        event = output.push(token)
        if event is not None:
            events.append(event)
        if output.finish_reason is not None:
            break
    return events, output.finish_reason


def text_of(events: list[TextEvent]) -> str:
    return "".join(event.text for event in events)


def ids_of(events: list[TextEvent]) -> tuple[int, ...]:
    return tuple(token for event in events for token in event.token_ids)


def test_each_token_gives_its_text_at_once() -> None:
    events, reason = run(letters("abc"))
    assert [event.text for event in events] == ["a", "b", "c"]
    assert [event.token_ids for event in events] == [(1,), (2,), (3,)]
    assert reason is None


def test_an_end_of_turn_ends_the_request_and_is_not_text() -> None:
    events, reason = run((*letters("ab"), END_ID, *letters("c")))
    assert (text_of(events), reason) == ("ab", FinishReason.STOP)
    assert ids_of(events) == (*letters("ab"), END_ID)


def test_an_end_of_turn_is_not_text_whatever_its_piece_is() -> None:
    tokenizer = LetterTokenizer()
    tokenizer.end_ids = frozenset(letters("z"))
    output = RequestOutput(a_request(), cast(Tokenizer, tokenizer), max_new_tokens=9)
    assert output.push(1) == TextEvent((Token(1, "a"),))
    assert output.push(26) == TextEvent((Token(26, ""),))
    assert output.finish_reason is FinishReason.STOP


def test_an_ignored_end_of_turn_is_a_token_without_text() -> None:
    events, reason = run((*letters("ab"), END_ID, *letters("c")), max_new_tokens=4, ignore_eos=True)
    assert (text_of(events), reason) == ("abc", FinishReason.LENGTH)
    assert ids_of(events) == (1, 2, END_ID, 3)


def test_the_limit_of_tokens_ends_the_request_with_length() -> None:
    events, reason = run(letters("abcdef"), max_new_tokens=3)
    assert (text_of(events), reason) == ("abc", FinishReason.LENGTH)


def test_a_character_is_held_until_its_last_byte() -> None:
    events, _ = run((1, *EURO, 2))
    assert [(event.text, event.token_ids) for event in events] == [("a", (1,)), ("€", EURO), ("b", (2,))]


def test_an_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    events, reason = run((1, 27, END_ID))
    assert (text_of(events), reason) == ("a�", FinishReason.STOP)
    events, reason = run((1, 27), max_new_tokens=2)
    assert (text_of(events), reason) == ("a�", FinishReason.LENGTH)


def test_a_stop_string_cuts_the_text_before_it() -> None:
    events, reason = run(letters("abcdefg"), stop=("cde",))
    assert (text_of(events), reason) == ("ab", FinishReason.STOP)
    assert ids_of(events) == letters("abcde")


def test_text_that_only_began_like_a_stop_string_is_sent_in_the_end() -> None:
    events, reason = run((*letters("abc"), END_ID), stop=("bcd",))
    assert (text_of(events), reason) == ("abc", FinishReason.STOP)
    events, reason = run(letters("abcx"), stop=("bcd",))
    assert (text_of(events), reason) == ("abcx", None)
    events, reason = run(letters("abc"), stop=("bcd",), max_new_tokens=3)
    assert (text_of(events), reason) == ("abc", FinishReason.LENGTH)


def test_a_stop_string_that_ends_with_the_last_allowed_token_is_a_stop() -> None:
    events, reason = run(letters("abc"), stop=("bc",), max_new_tokens=3)
    assert (text_of(events), reason) == ("a", FinishReason.STOP)


def test_a_replacement_character_at_the_end_can_complete_a_stop_string() -> None:
    events, reason = run((1, 2, 27), stop=("b�",), max_new_tokens=3)
    assert (text_of(events), reason) == ("a", FinishReason.STOP)


def test_every_token_is_reported_once_even_without_text() -> None:
    events, _ = run((END_ID,))
    assert events == [TextEvent((Token(END_ID, ""),))]
    events, _ = run((*EURO, 1, 27, END_ID), stop=("zz",))
    assert ids_of(events) == (*EURO, 1, 27, END_ID)


def output_of(max_new_tokens: int = 100, **fields: Any) -> RequestOutput:
    return RequestOutput(a_request(**fields), letter_tokenizer(), max_new_tokens)


def pushed(output: RequestOutput, tokens: tuple[int, ...]) -> list[tuple[str, bool]]:
    """Push tokens until the end; text of each reported token, and whether it is a mark."""
    reported = list[Token]()
    for token in tokens:
        event = output.push(token)
        reported += event.tokens if event is not None else ()
        if output.finish_reason is not None:
            break
    return [(token.text, token.is_mark) for token in reported]


def test_the_end_names_the_stop_string_and_keeps_it_if_told_to() -> None:
    for include, text in ((False, "ab"), (True, "abcd")):
        output = output_of(stop=("zz", "cd"), include_stop=include)
        assert "".join(text for text, _ in pushed(output, letters("abcdef"))) == text
        assert (output.finish_reason, output.stop) == (FinishReason.STOP, "cd")


def test_a_stop_token_ends_the_answer_and_is_text_only_if_told_to() -> None:
    for include, text in ((False, "ab"), (True, "abc")):
        output = output_of(stop_tokens=frozenset(letters("c")), include_stop=include)
        assert "".join(text for text, _ in pushed(output, letters("abcd"))) == text
        assert (output.finish_reason, output.stop) == (FinishReason.STOP, letters("c")[0])


def test_a_stop_token_that_is_a_control_token_writes_its_name_if_told_to() -> None:
    output = output_of(stop_tokens=frozenset({END_ID}), include_stop=True)
    assert pushed(output, (1, END_ID)) == [("a", False), ("<end>", False)]
    assert output.stop == END_ID


def test_a_stop_token_counts_where_ends_of_turn_are_ignored() -> None:
    output = output_of(stop_tokens=frozenset({END_ID}), ignore_eos=True)
    assert pushed(output, (1, END_ID)) == [("a", False), ("", False)]
    assert (output.finish_reason, output.stop) == (FinishReason.STOP, END_ID)


def test_an_end_of_turn_is_no_stop_that_is_named() -> None:
    output = output_of()
    pushed(output, (1, END_ID))
    assert (output.finish_reason, output.stop) == (FinishReason.STOP, None)


def test_control_tokens_are_written_out_where_they_are_not_skipped() -> None:
    output = output_of(skip_special_tokens=False, ignore_eos=True)
    assert pushed(output, (1, END_ID, 2)) == [("a", False), ("<end>", False), ("b", False)]
    ended = output_of(skip_special_tokens=False, include_stop=True)
    assert pushed(ended, (1, END_ID)) == [("a", False), ("<end>", False)]


def test_time_that_is_up_ends_the_answer_with_all_its_text() -> None:
    output = output_of(stop=("bcd",))
    assert pushed(output, letters("ab")) == [("a", False)]
    event = output.push(3, is_last=True)
    assert event is not None and event.text == "bc"
    assert (output.finish_reason, output.stop) == (FinishReason.LENGTH, DEADLINE)


@pytest.mark.parametrize(
    ("tokens", "stop", "text", "stopped_by"),
    [
        (letters("abc"), ("bcd",), "abc", DEADLINE),
        ((1, 31), (" a",), "a  ", DEADLINE),
        ((1, 27), (), "a\ufffd", DEADLINE),
        ((1, 27), ("\ufffd",), "a", "\ufffd"),
        (letters("abc"), (), "abc", DEADLINE),
        ((), (), "", DEADLINE),
    ],
)
def test_time_that_is_up_between_two_tokens_gives_out_what_was_held_back(
    tokens: tuple[int, ...], stop: tuple[str, ...], text: str, stopped_by: str
) -> None:
    output = output_of(stop=stop, max_seconds=1.0)
    events = [event for event in map(output.push, tokens) if event is not None]
    last = output.end()
    assert text_of([*events, last] if last else events) == text
    assert ids_of([*events, last] if last else events) == tokens
    assert output.stop == stopped_by
    assert output.finish_reason is (FinishReason.LENGTH if stopped_by == DEADLINE else FinishReason.STOP)


@pytest.mark.parametrize("tokens", [letters("abc"), (1, END_ID)])
def test_an_answer_that_is_complete_when_time_is_up_ends_as_ever(tokens: tuple[int, ...]) -> None:
    output = output_of(max_new_tokens=3)
    for token in tokens[:-1]:
        output.push(token)
    output.push(tokens[-1], is_last=True)
    assert output.finish_reason is (FinishReason.STOP if END_ID in tokens else FinishReason.LENGTH)
    assert output.stop is None


def test_no_stop_string_is_looked_for_before_enough_tokens_are_there() -> None:
    output = output_of(stop=("b",), min_tokens=3)
    assert pushed(output, letters("abab")) == [(letter, False) for letter in "aba"] + [("", False)]
    assert (output.finish_reason, output.stop) == (FinishReason.STOP, "b")
    exact = output_of(stop=("c",), min_tokens=3)
    assert pushed(exact, letters("abc")) == [("a", False), ("b", False), ("", False)]


def test_a_token_carries_its_logprob() -> None:
    logprob = TokenLogprob(1, -0.5, ((1, -0.5),))
    event = output_of().push(1, logprob)
    assert event == TextEvent((Token(1, "a", logprob=logprob),))


MARK = 26  # z


def test_a_mark_comes_alone_with_its_name_and_the_text_before_it_is_complete() -> None:
    output = output_of(marks=frozenset({MARK}), stop=("bcd",))
    assert pushed(output, letters("abcze")) == [("a", False), ("", False), ("bc", False), ("z", True), ("e", False)]


def test_a_mark_cuts_a_character_that_was_begun() -> None:
    output = output_of(marks=frozenset({MARK}))
    assert pushed(output, (1, 27, 28, MARK, 2)) == [
        ("a", False),
        ("", False),
        ("\ufffd", False),
        ("z", True),
        ("b", False),
    ]


def test_a_token_of_which_a_part_is_held_back_waits_for_a_mark() -> None:
    """Two spaces are one token: the second may begin the stop string and the first may not."""
    for marks, first in ((frozenset({MARK}), []), (frozenset[int](), [" "])):
        output = output_of(marks=marks, stop=(" b",))
        event = output.push(31)
        assert [event.text] == first if event is not None else first == []
    output = output_of(marks=frozenset({MARK}), stop=(" b",))
    assert pushed(output, (31, MARK)) == [("  ", False), ("z", True)]


def test_no_stop_string_reaches_over_a_mark_but_a_mark_s_name_may_be_one() -> None:
    output = output_of(marks=frozenset({MARK}), stop=("azb", "ab"))
    assert pushed(output, letters("azbab")) == [
        ("a", False),
        ("z", True),
        ("b", False),
        ("", False),
        ("", False),
    ]
    named = output_of(marks=frozenset({MARK}), stop=("z",))
    assert pushed(named, letters("azb")) == [("a", False), ("", False)]
    assert (named.finish_reason, named.stop) == (FinishReason.STOP, "z")


def test_the_last_allowed_token_may_be_a_mark() -> None:
    output = output_of(max_new_tokens=2, marks=frozenset({MARK}))
    assert pushed(output, letters("az")) == [("a", False), ("z", True)]
    assert output.finish_reason is FinishReason.LENGTH


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, MARK, 27, 28, 29, 30, 31, END_ID]), max_size=25).map(tuple),
    st.lists(st.sampled_from(["b", "ab", "a c", " ", "\ufffd", "z"]), max_size=3).map(tuple),
    st.booleans(),
    st.integers(1, 25),
)
def test_every_token_is_reported_once_and_marks_split_the_text(
    tokens: tuple[int, ...], stop: tuple[str, ...], include: bool, limit: int
) -> None:
    """Between marks the text is that of a matcher which sees the whole of it."""
    output = output_of(limit, marks=frozenset({MARK}), stop=stop, include_stop=include)
    reported = list[Token]()
    for token in tokens:
        event = output.push(token)
        if event is not None:
            last = event.tokens[-1]
            assert last.text or last.is_mark or output.finish_reason is not None
            reported += event.tokens
        if output.finish_reason is not None:
            break
    if output.finish_reason is None:
        event = output.push(1, is_last=True)
        assert event is not None
        reported += event.tokens
        tokens = (*tokens, 1)
    assert [token.id for token in reported] == list(tokens[: len(reported)])
    assert "".join(token.text for token in reported) == expected_text(tokens[: len(reported)], stop, include)
    assert all(token.text == "z" and token.id == MARK for token in reported if token.is_mark)


def expected_text(tokens: tuple[int, ...], stops: tuple[str, ...], include: bool) -> str:
    """The text of all tokens, piece by piece between marks, up to the first stop string in a piece."""
    text = ""
    pieces: list[bytes] = [b""]
    for token in tokens:
        if token == MARK:
            pieces += [b"z", b""]
        elif token != END_ID:
            pieces[-1] += LetterTokenizer.pieces[token]
    for piece in (piece.decode(errors="replace") for piece in pieces):
        for end in range(1, len(piece) + 1):
            found = max((stop for stop in stops if piece[:end].endswith(stop)), key=len, default="")
            if found:
                return text + piece[: end if include else end - len(found)]
        text += piece
    return text


@given(st.lists(st.sampled_from([*range(1, 30), END_ID]), max_size=20), st.integers(1, 20))
def test_an_answer_with_stops_that_never_come_is_told_as_one_without(tokens: list[int], max_new_tokens: int) -> None:
    told = run(tuple(tokens), max_new_tokens=max_new_tokens)
    assert run(tuple(tokens), max_new_tokens=max_new_tokens, stop=("\0",)) == told
