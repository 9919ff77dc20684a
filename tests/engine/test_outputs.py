"""From tokens to text events and ends."""

from typing import cast

from engine.outputs import RequestOutput
from engine.request import FinishReason, TextEvent, Token
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
