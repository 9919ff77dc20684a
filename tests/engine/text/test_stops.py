"""Stop strings: equal to a search in the whole text, however the text arrives; no part of one is ever sent."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import StopMatcher

STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=5).map(tuple)
CHUNKS = st.lists(st.text("ab\nc", max_size=6), max_size=12)


def naive(stops: tuple[str, ...], text: str) -> tuple[str, bool]:
    """The text before the first stop string that completes; of several that complete together, before the longest."""
    cut, stop, _ = naive_match(stops, text)
    return cut, stop is not None


def naive_match(stops: tuple[str, ...], text: str) -> tuple[str, str | None, str]:
    """The text before the match, the stop string, and the text with the match."""
    for end in range(1, len(text) + 1):
        found = max((stop for stop in stops if text[:end].endswith(stop)), key=len, default=None)
        if found is not None:
            return text[: end - len(found)], found, text[:end]
    return text, None, text


@given(STOPS, CHUNKS)
def test_any_chunking_gives_the_text_before_the_stop(stops: tuple[str, ...], chunks: list[str]) -> None:
    matcher = StopMatcher(stops)
    sent = "".join(map(matcher.push, chunks)) + matcher.flush()
    assert (sent, matcher.stopped) == naive(stops, "".join(chunks))


@given(STOPS, CHUNKS)
def test_only_what_may_become_a_stop_string_is_held_back(stops: tuple[str, ...], chunks: list[str]) -> None:
    matcher = StopMatcher(stops)
    sent = received = ""
    for chunk in chunks:
        received += chunk
        sent += matcher.push(chunk)
        if matcher.stopped:
            break
        held = received[len(sent) :]
        heads = [stop[:size] for stop in stops for size in range(1, len(stop))]
        assert held == max((head for head in heads if received.endswith(head)), key=len, default="")


@given(STOPS, CHUNKS)
def test_a_stop_string_is_named_and_kept_where_that_is_wanted(stops: tuple[str, ...], chunks: list[str]) -> None:
    matcher = StopMatcher(stops, include=True)
    sent = "".join(map(matcher.push, chunks)) + matcher.flush()
    _, stop, kept = naive_match(stops, "".join(chunks))
    assert (sent, matcher.matched) == (kept, stop)


def test_after_a_flush_nothing_before_it_is_part_of_a_stop_string() -> None:
    matcher = StopMatcher(("abc",))
    assert matcher.push("xab") + matcher.flush() == "xab"
    assert matcher.push("c") == "c"
    assert not matcher.is_holding and not matcher.stopped


def test_where_stop_strings_overlap_the_first_to_complete_decides() -> None:
    matcher = StopMatcher(("abcd", "bc"))
    assert matcher.push("xab") == "x"
    assert matcher.push("cd") == "a"
    assert matcher.stopped
    assert matcher.push("more") == matcher.flush() == ""


def test_of_stop_strings_that_complete_together_the_longest_is_cut() -> None:
    matcher = StopMatcher(("c", "bc", "abc"))
    assert matcher.push("xabc") == "x"


def test_without_stop_strings_text_passes_at_once() -> None:
    matcher = StopMatcher(())
    assert matcher.push("anything") == "anything"
    assert not matcher.stopped


def test_held_text_is_given_out_at_the_end() -> None:
    matcher = StopMatcher(("\n\nUser:",))
    assert matcher.push("Yes.\n\nUse") == "Yes."
    assert matcher.flush() == "\n\nUse"
