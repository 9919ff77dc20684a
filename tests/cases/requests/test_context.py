"""Area context: a prompt that does not fit is refused with both numbers, and an answer ends with the context."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, TEXT_PATH, Json, RealServer

CONTEXT = 512


def user(length: int) -> list[Json]:
    return [{"role": "user", "content": "x" * length}]


@pytest.mark.parametrize("length", [512, 513, 5000, 100_000])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_fills_the_context_is_refused(plain: RealServer, length: int, stream: bool) -> None:
    """BB-055: it hangs, it is cut without a word, or the context is shifted for ever."""
    for prompt in ([88] * length, "x" * length):
        error = plain.refusal(TEXT_PATH, {"prompt": prompt, "max_tokens": 10, "stream": stream})
        assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", length, CONTEXT)
        assert str(length) in error["message"] and str(CONTEXT) in error["message"]


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 10}, {"max_tokens": 10**6}])
@pytest.mark.parametrize("length", [1, 500, 505, 511])
def test_a_prompt_that_fits_is_read_whole_and_answered_up_to_the_end(
    plain: RealServer, length: int, limit: Json
) -> None:
    """BB-055: never more than the context, and never less of the prompt than was sent."""
    _, reason, usage = plain.texts(prompt=[88] * length, ignore_eos=True, **limit)
    room = min(CONTEXT - length, limit.get("max_tokens", 16))  # completions are short by default, as OpenAI's are
    assert (usage["prompt_tokens"], usage["completion_tokens"], reason) == (length, room, "length")


def test_a_chat_that_grows_over_the_edge_is_refused_there(plain: RealServer) -> None:
    """BB-055: turn by turn, with the message that is the longest named."""
    chat = user(5)
    for _ in range(40):
        answer = plain.post(CHAT_PATH, {"messages": chat, "max_tokens": 8, "ignore_eos": True})
        if answer.status_code != 200:
            break
        usage = answer.json()["usage"]
        assert usage["prompt_tokens"] == len(plain.prompt_ids(chat)) < CONTEXT
        assert usage["total_tokens"] <= CONTEXT
        chat += [{"role": "assistant", "content": "y" * 8}, *user(12)]
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["n_prompt_tokens"] == len(plain.prompt_ids(chat)) >= CONTEXT


def test_eight_at_once_end_at_the_edge_and_leave_nothing(plain: RealServer) -> None:
    """BB-055: a batch of prompts that leave room for one token or a few, among some that leave none."""
    lengths = [511, 512, 510, 5000, 500, 511, 513, 509]

    def ask(length: int) -> Any:
        return plain.post(TEXT_PATH, {"prompt": [88] * length, "ignore_eos": True})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, lengths))
    for length, answer in zip(lengths, answers, strict=True):
        assert answer.status_code == (200 if length < CONTEXT else 400)
        if length < CONTEXT:
            assert answer.json()["usage"]["completion_tokens"] == CONTEXT - length
    assert plain.is_idle()


def test_a_list_of_prompts_is_refused_by_the_place_of_the_one_that_is_too_long(plain: RealServer) -> None:
    """BB-055: none of them is answered then."""
    error = plain.refusal(TEXT_PATH, {"prompt": ["short", "x" * 600], "max_tokens": 2})
    assert (error["param"], error["code"]) == ("prompt[1]", "context_length_exceeded")
    assert plain.is_idle()
