"""Messages on their way to the template."""

from typing import Any

import pytest

from engine.errors import RequestError
from server.fields.chat import ChatBody
from server.generate.prompts import plain_messages


def plain(*messages: dict[str, Any]) -> list[dict[str, object]]:
    return plain_messages(ChatBody.model_validate({"model": "m", "messages": list(messages)}).messages)


def call(arguments: object) -> dict[str, object]:
    return {"id": "c1", "type": "function", "function": {"name": "gauge", "arguments": arguments}}


def test_text_parts_become_one_message() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {}}]
    assert plain({"role": "user", "content": parts}) == [{"role": "user", "content": "a\nb"}]


def test_one_part_equals_the_plain_string() -> None:
    assert plain({"role": "user", "content": [{"type": "text", "text": "a"}]}) == plain(
        {"role": "user", "content": "a"}
    )


def test_null_empty_and_absent_content_of_a_calling_assistant_are_alike() -> None:
    calls = {"role": "assistant", "tool_calls": [call("{}")]}
    results = [plain(calls), plain({**calls, "content": None}), plain({**calls, "content": ""})]
    assert results[0] == results[1] == results[2]
    assert results[0][0]["content"] == ""


def test_a_call_and_its_result_pass_as_they_came() -> None:
    messages = plain(
        {"role": "assistant", "tool_calls": [call('{"a": ')]},
        {"role": "tool", "tool_call_id": "c1", "content": "17 bar"},
    )
    assert messages[0]["tool_calls"] == [call('{"a": ')]
    assert messages[1] == {"role": "tool", "content": "17 bar", "tool_call_id": "c1"}


def test_a_tool_result_without_a_call_is_refused_by_path() -> None:
    with pytest.raises(RequestError) as caught:
        plain({"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "nope", "content": "y"})
    assert caught.value.param == "messages[1].tool_call_id"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_both_names_of_reasoning_are_read(field: str) -> None:
    message = plain({"role": "assistant", "content": "x", field: "because"})[0]
    assert message["reasoning"] == message["reasoning_content"] == "because"


def test_refusal_parts_are_text_of_an_assistant_only() -> None:
    part = {"type": "refusal", "refusal": "no"}
    assert plain({"role": "assistant", "content": [part]})[0]["content"] == "no"
    assert plain({"role": "assistant", "content": None, "refusal": "no"})[0]["content"] == "no"
    with pytest.raises(ValueError, match="type"):
        plain({"role": "user", "content": [part]})
