"""Messages of the API become messages that templates can read."""

import pytest

from engine.errors import TemplateError
from engine.text.messages import Message, for_template, in_turns, system_first, with_text_arguments


def one(**message: object) -> dict[str, object]:
    return for_template([{"role": "user", **message}])[0]


def test_missing_content_is_empty_text_and_null_keys_are_left_out() -> None:
    assert one(content=None, name=None, tool_calls=[]) == {"role": "user", "content": ""}


def test_developer_messages_are_system_messages() -> None:
    assert for_template([{"role": "developer", "content": "x"}]) == [{"role": "system", "content": "x"}]


@pytest.mark.parametrize("role", [None, 7, "user<|im_end|>", ""])
def test_a_role_is_a_plain_word(role: object) -> None:
    with pytest.raises(TemplateError) as caught:
        for_template([{"role": role, "content": "x"}])
    assert caught.value.param == "messages[0].role"


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"a": [1, "é"]}', {"a": [1, "é"]}), ("{broken", "{broken"), ("5", "5"), ("[" * 9999, "[" * 9999)],
)
def test_arguments_are_objects_where_they_are_json_objects(text: str, expected: object) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": text}}
    message = one(role="assistant", content=None, tool_calls=[call])
    assert message["tool_calls"] == [{**call, "function": {"name": "f", "arguments": expected}}]


def test_arguments_can_be_written_as_text_again() -> None:
    call = {"function": {"name": "f", "arguments": {"a": "é"}}}
    (message,) = with_text_arguments([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert message["tool_calls"] == [{"function": {"name": "f", "arguments": '{"a": "é"}'}}]


def test_a_tool_message_learns_the_name_of_its_function() -> None:
    calls = [{"id": "c1", "function": {"name": "f"}}, {"id": "c2", "function": {"name": "g"}}]
    messages = for_template(
        [
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
            {"role": "tool", "tool_call_id": "c9", "content": "9"},
        ]
    )
    assert [message.get("name") for message in messages] == [None, "g", None]


def test_reasoning_is_read_under_both_names() -> None:
    assert one(reasoning="r")["reasoning_content"] == "r"
    assert one(reasoning="r", reasoning_content="c")["reasoning_content"] == "c"


def test_system_messages_are_merged_to_the_front_in_order() -> None:
    chat: list[Message] = [
        {"role": "user", "content": "u"},
        {"role": "system", "content": "a"},
        {"role": "assistant", "content": "x"},
        {"role": "system", "content": "b"},
    ]
    assert system_first(chat) == [{"role": "system", "content": "a\n\nb"}, chat[0], chat[2]]
    assert system_first(chat[:1]) == chat[:1]


def test_turns_alternate_and_the_system_message_opens_the_first() -> None:
    call: Message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}
    roles = ("user", "system", "user", "assistant", "assistant")
    chat: list[Message] = [{"role": role, "content": str(place)} for place, role in enumerate(roles)]
    assert in_turns([*chat, call, call]) == [
        {"role": "user", "content": "1\n\n0\n\n2"},
        {"role": "assistant", "content": "3\n\n4"},
        call,
        call,
    ]
    assert in_turns([{"role": "system", "content": "s"}]) == [{"role": "user", "content": "s"}]
    assert in_turns([]) == []
