"""/tokenize and /detokenize in both dialects, rendering a chat, and counting its tokens."""

from typing import Any

import httpx
import pytest

from server.api.tokens.body import TokenizeBody
from server.api.tokens.handlers import TOKENIZE_PARAMETERS
from server.fields.parameters import Handling
from server.settings import ServingOptions
from tests.server.harness import http_client
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, scripted_model

MESSAGES = [{"role": "user", "content": "Hi"}]
PROMPT = "user: Hi\nassistant: "
EURO = list("€".encode())


async def post(path: str, body: Any, model: ScriptedModel | None = None, strict: bool = False) -> httpx.Response:
    async with http_client(model or scripted_model(), ServingOptions(strict_params=strict)) as client:
        return await client.post(path, json=body)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
async def test_raw_text_becomes_tokens_in_both_dialects(path: str) -> None:
    for body in ({"content": "ab€"}, {"prompt": "ab€"}, {"prompt": "ab€", "model": "gpt-4o"}):
        answer = await post(path, body)
        tokens = [97, 98, *EURO]
        assert answer.json() == {"tokens": tokens, "count": 5, "max_model_len": 4096, "token_strs": None}


async def test_a_chat_becomes_the_tokens_of_its_prompt() -> None:
    answer = await post("/tokenize", {"messages": MESSAGES})
    assert bytes(answer.json()["tokens"]).decode() == PROMPT
    answer = await post("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False})
    assert bytes(answer.json()["tokens"]).decode() == "user: Hi\n"


async def test_pieces_are_text_or_bytes_and_names_are_those_of_the_vocabulary() -> None:
    answer = await post("/tokenize", {"content": "a€", "with_pieces": True, "return_token_strs": True})
    pieces = answer.json()["tokens"]
    assert pieces[0] == {"id": 97, "piece": "a"}
    assert pieces[1:] == [{"id": byte, "piece": [byte]} for byte in EURO]
    assert answer.json()["token_strs"] == ["a", "â", "Ĥ", "¬"]


async def test_control_tokens_are_read_unless_told_otherwise() -> None:
    model = scripted_model()
    end = model.tokenizer.mark_id("<|im_end|>")
    assert (await post("/tokenize", {"content": "a<|im_end|>"}, model)).json()["tokens"] == [97, end]
    plain = await post("/tokenize", {"content": "a<|im_end|>", "parse_special": False}, model)
    assert bytes(plain.json()["tokens"]).decode() == "a<|im_end|>"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"content": "a"}, 1),
        ({"content": "a", "add_special": True}, 2),
        ({"prompt": "a"}, 2),
        ({"prompt": "a", "add_special_tokens": False}, 1),
        ({"content": ""}, 0),
        ({"prompt": ""}, 1),
    ],
)
async def test_each_dialect_adds_bos_by_its_own_default(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], count: int
) -> None:
    model = scripted_model()
    monkeypatch.setattr(type(model.tokenizer), "add_bos", True)
    monkeypatch.setattr(type(model.tokenizer), "bos_id", model.tokenizer.mark_id("<|im_start|>"))
    assert (await post("/tokenize", body, model)).json()["count"] == count


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "content", "missing_required_parameter"),
        ({"content": None}, "content", "missing_required_parameter"),
        ({"content": 5}, "content", "invalid_type"),
        ({"content": "a", "prompt": "b"}, "prompt", "invalid_value"),
        ({"prompt": "a", "messages": MESSAGES}, "messages", "invalid_value"),
        ({"messages": []}, "messages", "array_below_min_length"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens", "invalid_value"),
        ({"prompt": "a", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "invalid_value"),
        ({"prompt": "a", "continue_final_message": True}, "continue_final_message", "invalid_value"),
        ({"messages": MESSAGES, "chat_template": "{{ 1 }}"}, "chat_template", "unsupported_parameter"),
    ],
)
async def test_what_cannot_be_tokenized_is_refused_by_name(body: Any, param: str, code: str) -> None:
    answer = await post("/tokenize", body)
    assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (400, param, code)


async def test_unknown_fields_are_listed_or_refused() -> None:
    assert (await post("/tokenize", {"content": "a", "wat": 1})).headers["x-ignored-params"] == "wat"
    assert (await post("/detokenize", {"tokens": [97], "wat": 1})).headers["x-ignored-params"] == "wat"
    assert (await post("/detokenize", {"tokens": [97], "wat": 1}, strict=True)).status_code == 400


async def test_another_model_is_not_answered_for() -> None:
    for path, body in (("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [97]})):
        assert (await post(path, {**body, "model": "other"})).status_code == 404


def test_the_table_and_the_body_name_the_same_parameters() -> None:
    honoured = {row.name for row in TOKENIZE_PARAMETERS.values() if row.handling is Handling.HONOURED}
    assert {name for name in honoured if "." not in name} == TokenizeBody.model_fields.keys()


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
async def test_tokens_become_text_under_both_names(path: str) -> None:
    model = scripted_model()
    tokens = [97, model.tokenizer.mark_id("<|im_end|>"), *EURO]
    assert (await post(path, {"tokens": tokens}, model)).json() == {"content": "a<|im_end|>€", "prompt": "a<|im_end|>€"}
    assert (await post(path, {"tokens": []})).json() == {"content": "", "prompt": ""}


async def test_bytes_of_no_whole_character_are_marked() -> None:
    assert (await post("/detokenize", {"tokens": [*EURO[:2], 97, 255]})).json()["content"] == "\ufffda\ufffd"


@pytest.mark.parametrize(
    ("tokens", "param"),
    [(None, "tokens"), ("a", "tokens"), ([1, -1], "tokens[1]"), ([1, "a"], "tokens[1]"), ([1, 2, 5000], "tokens[2]")],
)
async def test_ids_that_are_no_tokens_are_refused_by_place(tokens: Any, param: str) -> None:
    answer = await post("/detokenize", {"tokens": tokens})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", ["/apply-template", "/v1/apply-template", "/v1/chat/completions/render"])
async def test_a_chat_is_rendered_as_its_model_reads_it(path: str) -> None:
    model = scripted_model()
    body = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}], "temperature": 0}
    answer = await post(path, body, model)
    assert answer.json() == {"prompt": PROMPT, "token_ids": list(PROMPT.encode())}
    assert isinstance(model.template, PlainTemplate) and model.template.tools[-1]
    assert model.service.requests == []


async def test_a_chat_without_a_template_cannot_be_rendered() -> None:
    answer = await post("/apply-template", {"messages": MESSAGES}, ScriptedModel(template=None))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


async def test_the_tokens_of_a_chat_are_counted() -> None:
    answer = await post("/v1/chat/completions/input_tokens", {"model": "scripted", "messages": MESSAGES})
    assert answer.json() == {
        "object": "response.input_tokens",
        "input_tokens": len(PROMPT),
        "max_model_len": 4096,
        "fits": True,
        "biggest_message": None,
    }


LONG = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "x" * 30},
    {"role": "assistant", "content": "y" * 20},
    {"role": "user", "content": "go on"},
]


async def test_a_chat_that_does_not_fit_is_counted_all_the_same_and_its_biggest_message_named() -> None:
    answer = await post("/v1/chat/completions/input_tokens", {"messages": LONG}, ScriptedModel(context_length=50))
    assert answer.status_code == 200 and answer.json()["fits"] is False
    assert answer.json()["biggest_message"] == {"index": 1, "role": "user", "tokens": 30}


async def test_the_refusal_of_a_chat_that_does_not_fit_names_its_biggest_message() -> None:
    body = {"model": "scripted", "messages": LONG}
    answer = await post("/v1/chat/completions", body, ScriptedModel(context_length=50))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert "the biggest message is messages[1] (user) with 30 tokens." in error["message"]
    assert error["n_prompt_tokens"] > error["n_ctx"] == 50
