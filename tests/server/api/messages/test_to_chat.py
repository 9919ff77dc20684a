"""Messages bodies turned into chats: blocks, tools, thinking, and what is refused by name."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from engine.errors import RequestError
from server.api.messages.body import MessagesBody
from server.api.messages.to_chat import messages_form
from server.generate.chat_form import ChatForm

TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": 'up\n"é"'}}


def form(messages: object = "Hi", **fields: Any) -> ChatForm:
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {"model": "m", "max_tokens": 16, "messages": messages, **fields}
    made = messages_form(MessagesBody.model_validate(body))
    made.validated()
    return made


def chat(messages: object = "Hi", **fields: Any) -> Any:
    return form(messages, **fields).body


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def test_a_plain_request() -> None:
    assert chat() == {
        "model": "m",
        "messages": [{"role": "user", "content": text("Hi")}],
        "max_completion_tokens": 16,
    }


def test_sampling_by_its_own_names() -> None:
    body = chat(temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=7, stop_sequences=["a", "b"])
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "stop": ["a", "b"]}
    assert body | wanted == body


@pytest.mark.parametrize("system", ["Be brief.", text("Be brief.")])
def test_the_system_prompt_comes_first(system: object) -> None:
    assert chat(system=system)["messages"][0] == {"role": "system", "content": text("Be brief.")}


def test_a_conversation_with_a_tool_keeps_its_order() -> None:
    said = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, *text("I look."), CALL]
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sky"}, *text("And", "now?")]
    messages = chat(
        [
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": results},
        ]
    )["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[1]["reasoning_content"] == "Hm."
    assert messages[1]["content"] == text("I look.")
    assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == CALL["input"]
    assert messages[2] == {"role": "tool", "tool_call_id": "toolu_1", "content": text("sky")}
    assert messages[3]["content"] == text("And", "now?")


@pytest.mark.parametrize("content", ["no such file", text("no such file")])
def test_a_failed_tool_says_so_to_the_model(content: object) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": True}
    messages = [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [result]}]
    assert chat(messages)["messages"][1]["content"] == text("Error: no such file")


def test_a_tool_result_may_be_empty() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    messages = [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [result]}]
    assert chat(messages)["messages"][1]["content"] == []


def test_a_tool_result_without_its_call_is_refused_by_name() -> None:
    with pytest.raises(RequestError) as caught:
        chat([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}])
    assert caught.value.param == "messages[0].content[0].tool_use_id"


def test_redacted_thinking_is_taken_and_says_nothing() -> None:
    said = [{"type": "redacted_thinking", "data": "…"}, *text("Yes.")]
    messages = chat([{"role": "assistant", "content": said}, {"role": "user", "content": "So?"}])["messages"]
    assert messages[0] == {"role": "assistant", "content": text("Yes.")}


def test_the_assistants_last_words_are_continued() -> None:
    prefilled = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]
    assert chat(prefilled)["continue_final_message"] is True
    assert "continue_final_message" not in chat()


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, {"tool_choice": "auto", "parallel_tool_calls": True}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"type": "tool", "name": "look"}, {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        ({"type": "none"}, {"tool_choice": "none"}),
    ],
)
def test_choices_of_tools(choice: object, wanted: dict[str, object]) -> None:
    body = chat(tools=[TOOL], tool_choice=choice)
    assert body | wanted == body
    assert body["tools"][0]["function"]["parameters"] == TOOL["input_schema"]


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        ({"type": "enabled", "budget_tokens": 64}, {"enable_thinking": True, "thinking_token_budget": 64}),
        ({"type": "adaptive"}, {"enable_thinking": True}),
        ({"type": "disabled"}, {"enable_thinking": False}),
    ],
)
def test_thinking(thinking: object, wanted: dict[str, object]) -> None:
    body = chat(thinking=thinking)
    assert body | wanted == body


def test_without_a_word_on_thinking_the_model_decides() -> None:
    assert "enable_thinking" not in chat()


def test_a_schema_and_an_effort() -> None:
    config = {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}
    body = chat(output_config=config)
    assert body["reasoning_effort"] == "low"
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("chat_param", "own"),
    [
        ("messages[0].content[1]", "system[1]"),
        ("messages[2].tool_calls[0].id", "messages[1].tool_calls[0].id"),
        ("tools[0].function.parameters.properties", "tools[0].input_schema.properties"),
        ("tools[0].function.name", "tools[0].name"),
        ("response_format.json_schema.schema.not", "output_config.format.schema.not"),
        ("max_completion_tokens", "max_tokens"),
        ("stop[1]", "stop_sequences[1]"),
        ("temperature", "temperature"),
        ("messages", "messages"),
    ],
)
def test_errors_name_the_request_as_it_was_sent(chat_param: str, own: str) -> None:
    sent = form([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], system="S", tools=[TOOL])
    error = sent.renamed(RequestError(f"{chat_param}: no.", param=chat_param))
    assert (error.param, str(error)) == (own, f"{own}: no.")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None},
        {"max_tokens": 0},
        {"temperature": 1.5},
        {"top_k": -1},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
        {"stop_sequences": [""]},
        {"stop_sequences": "a"},
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "between_tools"}},
        {"tool_choice": {"type": "tool"}},
        {"tools": [{"name": "a"}]},
    ],
)
def test_what_the_api_does_not_take(fields: dict[str, object]) -> None:
    body = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}], **fields}
    with pytest.raises(ValidationError):
        MessagesBody.model_validate(body)
