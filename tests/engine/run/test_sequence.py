"""The arithmetic of one sequence's state."""

from engine.run.sequence import Course, TokenSequence
from engine.sampling.token_chooser import TokenChooser
from tests.engine.scripted import a_request


def a_sequence() -> TokenSequence:
    request = a_request((1, 2, 3))
    return TokenSequence(request, 5, TokenChooser(request), course=Course(submitted_at=10.0))


def test_counts_follow_the_tokens() -> None:
    sequence = a_sequence()
    assert (sequence.prompt_tokens, sequence.new_tokens, sequence.pending) == (3, 0, 3)
    sequence.held.computed = 3
    sequence.tokens.append(9)
    assert (sequence.new_tokens, sequence.pending, sequence.worst_case_tokens) == (1, 1, 7)
    assert sequence.request.prompt.tokens == (1, 2, 3)


def test_timings_split_the_time_since_submission() -> None:
    sequence = a_sequence()
    sequence.course.started_at, sequence.course.first_token_at = 11.0, 14.0
    timings = sequence.course.timings(now=20.0)
    assert (timings.queue_seconds, timings.prefill_seconds, timings.decode_seconds) == (1.0, 3.0, 6.0)


def test_timings_of_a_request_that_never_ran_are_all_queue() -> None:
    timings = a_sequence().course.timings(now=12.5)
    assert (timings.queue_seconds, timings.prefill_seconds, timings.decode_seconds) == (2.5, 0.0, 0.0)
