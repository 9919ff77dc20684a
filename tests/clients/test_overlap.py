"""The arithmetic of decodes that run at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.overlap import Decode, overlap, spans


def test_decodes_that_wait_for_each_other_are_one_at_a_time() -> None:
    found = overlap([Decode(0, 2, 3), Decode(2, 5, 4), Decode(9, 10, 2)])
    assert (found.mean, found.most, found.rate_at_most) == (1.0, 1, 1.0)


def test_mean_and_most_are_over_the_time_in_which_any_decodes() -> None:
    found = overlap([Decode(0, 4, 5), Decode(2, 4, 5), Decode(100, 102, 3)])
    assert found.mean == pytest.approx((2 * 1 + 2 * 2 + 2 * 1) / 6)
    assert found.most == 2
    assert found.rate_at_most == pytest.approx(1 + 2)


def test_an_answer_of_one_token_decodes_nothing() -> None:
    assert overlap([Decode(1, 1, 1)]) == overlap([])
    assert overlap([]).mean is None


intervals = st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 50))


@given(st.lists(intervals, min_size=1, max_size=12))
def test_spans_agree_with_counting_at_every_moment(drawn: list[tuple[int, int, int]]) -> None:
    decodes = [Decode(begin, begin + length, tokens) for begin, length, tokens in drawn]
    moments = [tick + 0.5 for tick in range(60)]
    running = [[decode for decode in decodes if decode.begin < moment < decode.end] for moment in moments]
    found = list(spans(decodes))
    assert sum(span.seconds for span in found) == sum(1 for some in running if some)
    assert sum(span.seconds * span.depth for span in found) == sum(map(len, running))
    assert max(span.depth for span in found) == max(map(len, running))
    produced = sum(span.seconds * span.rate for span in found)
    assert produced == pytest.approx(sum(decode.tokens - 1 for decode in decodes), abs=1e-6)
