"""Responses bodies turned into chats: items, tools, formats, and what is refused by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine.errors import RequestError
from server.api.responses.body import ITEMS, ResponsesBody
from server.api.responses.to_chat import response_form
from server.generate.chat_form import ChatForm

TOOL = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"where": "up"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "sky"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}


def form(items: object = "Hi", earlier: list[Any] | None = None, **fields: Any) -> ChatForm:
    made = response_form(
        ResponsesBody.model_validate({"model": "m", "input": items, **fields}), ITEMS.validate_python(earlier or [])
    )
    made.validated()
    return made


def chat(items: object = "Hi", earlier: list[Any] | None = None, **fields: Any) -> Any:
    return form(items, earlier, **fields).body


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def test_a_string_is_what_the_user_says() -> None:
    assert chat() == {"model": "m", "messages": [{"role": "user", "content": text("Hi")}]}


def test_instructions_come_first_and_earlier_items_next() -> None:
    earlier = [{"role": "user", "content": "Before"}, SAID]
    messages = chat("Now", earlier, instructions="Be brief.")["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == text("Be brief.")


def test_what_one_turn_said_is_one_message() -> None:
    messages = chat([{"role": "user", "content": "Where?"}, THOUGHT, SAID, CALL, RESULT, SAID, THOUGHT, CALL])[
        "messages"
    ]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert messages[1]["reasoning_content"] == "Hm."
    assert messages[1]["content"] == text("I look.")
    assert messages[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"where": "up"}'}
    assert messages[2] == {"role": "tool", "tool_call_id": "call_1", "content": text("sky")}
    assert "tool_calls" not in messages[3]


@pytest.mark.parametrize("output", ["sky", [{"type": "input_text", "text": "sky"}]])
def test_the_output_of_a_call_may_be_parts(output: object) -> None:
    assert chat([CALL, {**RESULT, "output": output}])["messages"][1]["content"] == text("sky")


def test_a_summary_stands_in_for_reasoning_that_was_not_sent() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Short."}], "encrypted_content": "x"}
    assert chat([item, SAID])["messages"][0]["reasoning_content"] == "Short."


def test_a_refusal_is_said_again() -> None:
    item = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert chat([item, {"role": "user", "content": "Why?"}])["messages"][0]["content"] == text("No.")


def test_sampling_by_its_own_names() -> None:
    body = chat(temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, seed=7, max_output_tokens=9)
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 7, "max_completion_tokens": 9}
    assert body | wanted == body


@pytest.mark.parametrize(
    "fields", [{"include": ["message.output_text.logprobs"], "top_logprobs": 2}, {"top_logprobs": 2}]
)
def test_logprobs(fields: dict[str, Any]) -> None:
    body = chat(**fields)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]},
            },
        ),
    ],
)
def test_choices_of_tools(choice: object, wanted: object) -> None:
    body = chat(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (wanted, False)
    assert body["tools"][0]["function"] == {key: value for key, value in TOOL.items() if key != "type"}


def test_the_form_of_the_answer() -> None:
    schema = {"type": "json_schema", "name": "out", "schema": {"type": "object"}, "strict": True}
    assert chat(text={"format": schema})["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in chat(text={"format": {"type": "text"}})


def test_effort() -> None:
    assert chat(reasoning={"effort": "high", "summary": "auto"})["reasoning_effort"] == "high"


def test_an_output_without_its_call_is_refused_by_name() -> None:
    with pytest.raises(RequestError) as caught:
        chat([RESULT])
    assert caught.value.param == "input[0].call_id"


@pytest.mark.parametrize(
    ("chat_param", "own"),
    [
        ("messages", "input"),
        ("messages[0]", "instructions"),
        ("messages[1].content", "previous_response_id.content"),
        ("messages[2].content[0]", "input[0].content[0]"),
        ("tools[0].function.parameters.not", "tools[0].parameters.not"),
        ("response_format.json_schema.schema.not", "text.format.schema.not"),
        ("reasoning_effort", "reasoning.effort"),
        ("max_completion_tokens", "max_output_tokens"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.tools[0].function.name", "tool_choice.tools[0].name"),
    ],
)
def test_errors_name_the_request_as_it_was_sent(chat_param: str, own: str) -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}
    sent = form("Hi", [SAID], instructions="I", tools=[TOOL], tool_choice=allowed)
    error = sent.renamed(RequestError(f"{chat_param}: no.", param=chat_param))
    assert (error.param, str(error)) == (own, f"{own}: no.")


@pytest.mark.parametrize(
    "fields",
    [
        {"input": []},
        {"input": None},
        {"input": 5},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"id": "msg_1"}]},
        {"input": [{"type": "web_search_call", "id": "ws_1"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"input": [{"role": "tool", "content": "x"}]},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": {"type": "web_search_preview"}},
        {"tool_choice": "some"},
        {"include": ["everything"]},
        {"top_logprobs": 21},
        {"metadata": {"k": "v" * 513}},
        {"metadata": {str(key): "" for key in range(17)}},
        {"truncation": "middle"},
        {"max_output_tokens": 0},
        {"text": {"format": {"type": "json_schema", "name": "x"}}},
    ],
)
def test_what_the_api_does_not_take(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ResponsesBody.model_validate({"model": "m", "input": "Hi", **fields})
