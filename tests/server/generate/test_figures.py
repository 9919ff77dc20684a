"""Figures of answers."""

from typing import Any

from engine.api.request import FinishEvent, FinishReason, Timings, Token, TokenLogprob
from server.api.completions import LegacyLogprobs
from server.generate.answer import Finish, Speed
from server.generate.figures import chat_logprobs, timings, usage
from tests.server.scripted.engine import ScriptedTokenizer

TIMES = Timings(queue_seconds=0.01, prefill_seconds=0.5, decode_seconds=2.0, mean_lanes=3.456)


def finish(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> Finish:
    event = FinishEvent(
        reason=FinishReason.STOP,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        timings=TIMES,
    )
    return Finish(reason="stop", event=event, reasoning_tokens=reasoning)


def test_each_prompt_is_counted_once_and_the_answers_are_added_up() -> None:
    finishes = [finish(10, 3, cached=4, reasoning=2), finish(10, 5, cached=9), finish(7, 1), finish(7, 2)]
    figures = usage(finishes, 2)
    assert (figures["prompt_tokens"], figures["completion_tokens"], figures["total_tokens"]) == (17, 11, 28)
    assert figures["prompt_tokens_details"] == {"cached_tokens": 4}
    assert figures["completion_tokens_details"] == {
        "reasoning_tokens": 2,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }


def test_timings_tell_what_the_machine_could_do() -> None:
    figures = timings(finish(10, 41, cached=4).event, speed=Speed(1_000_000, 80e6))
    assert (figures["prompt_n"], figures["cache_n"], figures["lanes"]) == (6, 4, 3.46)
    assert (figures["predicted_per_second"], figures["bytes_per_step"]) == (20.0, 1_000_000)
    assert figures["bandwidth_percent"] == 25.0  # 40 passes of 1 MB in 2 s of 80 MB/s


def test_no_token_and_no_bandwidth_are_no_fault() -> None:
    assert timings(finish(10, 0).event, speed=Speed(1))["predicted_per_second"] == 0.0
    assert "bandwidth_percent" not in timings(finish(10, 0).event, speed=Speed(1))


def entry_of(token: Token) -> dict[str, Any]:
    content: Any = chat_logprobs([token], ScriptedTokenizer())["content"]
    assert len(content) == 1
    entry: dict[str, Any] = content[0]
    return entry


def test_what_json_cannot_say_is_the_lowest_figure() -> None:
    logprob = TokenLogprob(65, float("-inf"), ((66, -1.0), (65, float("-inf"))))
    entry = entry_of(Token(65, "A", logprob=logprob))
    assert entry["logprob"] == -9999.0 and entry["top_logprobs"][1]["logprob"] == -9999.0


def test_tokens_that_are_no_characters_are_told_by_their_bytes() -> None:
    logprob = TokenLogprob(0xF0, -0.5, ((0xF0, -0.5), (0x9F, -1.0)))
    tokenizer = ScriptedTokenizer()
    entry = entry_of(Token(0xF0, "", logprob=logprob))
    assert (entry["token"], entry["bytes"]) == ("\ufffd", [0xF0])
    legacy = LegacyLogprobs(tokenizer)
    legacy.add([Token(0xF0, "", logprob=logprob), Token(65, "A", logprob=TokenLogprob(65, -0.1))])
    assert legacy.take() == {
        "tokens": ["bytes:\\xf0", "A"],
        "token_logprobs": [-0.5, -0.1],
        "top_logprobs": [{"bytes:\\xf0": -0.5, "bytes:\\x9f": -1.0}, {"A": -0.1}],
        "text_offset": [0, 0],
    }


def test_control_tokens_are_told_by_their_names() -> None:
    tokenizer = ScriptedTokenizer()
    end = tokenizer.mark_id("<|im_end|>")
    entry = entry_of(Token(end, "", logprob=TokenLogprob(end, -0.5)))
    assert (entry["token"], entry["bytes"]) == ("<|im_end|>", None)
