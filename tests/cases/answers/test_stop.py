"""Area stop: a text ends before its stop string, which may begin and end within tokens."""

import json
import random
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, TEXT_PATH, RealServer

PICKS = 13  # for each way to ask, of four


def fillers(server: RealServer) -> list[int]:
    """Tokens whose texts are long enough to be cut within."""
    tokenizer = server.model.tokenizer
    return [token for token in range(server.model.vocab_size) if tokenizer.token_text(token).startswith("<filler_")]


def generated(server: RealServer, path: str, fields: dict[str, Any]) -> list[str]:
    """The texts of the tokens of one answer."""
    ask = server.chat if path == CHAT_PATH else server.complete
    ids = ask(**fields, return_token_ids=True)["choices"][0]["token_ids"]
    return [server.model.tokenizer.token_bytes(token).decode() for token in ids]


def stopped(server: RealServer, path: str, fields: dict[str, Any]) -> tuple[str, str, int]:
    """Text, finish reason and number of tokens, streamed and whole alike."""
    if path == TEXT_PATH:
        text, reason, usage = server.texts(**fields)
        return text, reason, usage["completion_tokens"]
    (choice,) = server.choices(**fields)
    usage = server.chat(**fields)["usage"]
    assert choice.finish is not None
    return choice.content, choice.finish["finish_reason"], usage["completion_tokens"]


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
@pytest.mark.parametrize("logprobs", [False, True])
def test_a_stop_string_across_tokens_cuts_the_text_and_leaks_nothing(
    plain: RealServer, path: str, logprobs: bool
) -> None:
    """BB-003: the part of a stop string that lies in an earlier token is sent, or the stop string is never seen."""
    chance = random.Random(7)
    for pick in range(PICKS):
        fields: dict[str, Any] = {"max_tokens": 24, "seed": pick, "allowed_token_ids": fillers(plain)}
        if logprobs:
            fields |= {"logprobs": True} if path == CHAT_PATH else {"logprobs": 1}
        tokens = generated(plain, path, fields)
        place = chance.randrange(len(tokens) - 1)
        before, after = tokens[place], tokens[place + 1]
        stop = before[len(before) // 2 :] + after[: len(after) // 2]
        text = "".join(tokens)
        needed = next(count for count in range(1, 25) if stop in "".join(tokens[:count]))
        assert stopped(plain, path, fields | {"stop": [stop]}) == (text[: text.index(stop)], "stop", needed), stop


def test_of_several_stop_strings_the_first_to_be_complete_counts(plain: RealServer) -> None:
    """BB-003: with many stop strings, of which some begin within others."""
    chance = random.Random(8)
    for pick in range(PICKS):
        fields = {"max_tokens": 24, "seed": pick, "allowed_token_ids": fillers(plain)}
        text = "".join(generated(plain, TEXT_PATH, fields))
        starts = [chance.randrange(len(text) - 12) for _ in range(5)]
        stops = [text[start : start + chance.randint(3, 12)] for start in starts] + ["nowhere", text[-1] + "<filler_0"]
        ends = {stop: text.index(stop) + len(stop) for stop in stops if stop in text}
        first = min(ends.values())
        expected = text[: min(text.index(stop) for stop, end in ends.items() if end == first)]
        assert stopped(plain, TEXT_PATH, fields | {"stop": stops})[:2] == (expected, "stop"), stops


def test_a_stop_string_within_a_character_of_many_tokens_is_seen(plain: RealServer) -> None:
    """BB-003: characters of several tokens before, within and after the stop string."""
    words = "é한😀ß赵"
    for length in (1, 2):
        for start in range(len(words) - length + 1):
            stop = words[start : start + length]
            (choice,) = plain.choices(regex=words, stop=stop, max_tokens=60)
            assert (choice.content, choice.finish) == (words[:start], {"finish_reason": "stop", "stop_reason": stop})


def test_the_beginning_of_a_stop_string_that_never_ends_is_text(plain: RealServer) -> None:
    """BB-003: what was held back is sent when the answer ends otherwise, by length and by the end of a turn."""
    fields: dict[str, Any] = {"max_tokens": 6, "seed": 4, "allowed_token_ids": fillers(plain)}
    text = "".join(generated(plain, TEXT_PATH, fields))
    assert stopped(plain, TEXT_PATH, fields | {"stop": text[-5:] + "#"}) == (text, "length", 6)
    (choice,) = plain.choices(structured_outputs={"choice": ["over and out"]}, stop=["out!"])
    assert (choice.content, choice.finish) == ("over and out", {"finish_reason": "stop"})


def test_a_stop_string_in_the_thinking_ends_the_answer_there(thinks: RealServer) -> None:
    """BB-003: what stands before it is handed out as thinking, and there is no content."""
    banned = {str(thinks.token("</think>")): -100, str(thinks.token("<tool_call>")): -100}
    fields: dict[str, Any] = {"max_tokens": 20, "seed": 2, "logit_bias": banned, "temperature": 1.5}
    fields |= {"messages": [{"role": "assistant", "content": "<think>"}], "continue_final_message": True}
    (free,) = thinks.choices(**fields)
    stop = free.reasoning[7:12]
    (choice,) = thinks.choices(**fields, stop=stop)
    assert choice.finish == {"finish_reason": "stop", "stop_reason": stop}
    assert (choice.reasoning, choice.content) == (free.reasoning[: free.reasoning.index(stop)], "")


def test_a_stop_string_within_a_call_leaves_no_call_to_be_made(calls: RealServer) -> None:
    """BB-003: arguments that were cut are no reason to call; a client told of tool_calls would."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"const": {"s": "one, two, three"}}}}
    (choice,) = calls.choices(tools=[tool], tool_choice="required", stop=["o, thr"], max_tokens=200)
    assert choice.finish == {"finish_reason": "stop", "stop_reason": "o, thr"}
    assert choice.calls[0]["arguments"].endswith('"one, tw')
    (choice,) = calls.choices(tools=[tool], tool_choice="required", stop=["</tool_call>"], max_tokens=200)
    assert choice.finish == {"finish_reason": "tool_calls", "stop_reason": "</tool_call>"}
    assert json.loads(choice.calls[0]["arguments"]) == {"s": "one, two, three"}
