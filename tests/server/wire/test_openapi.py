"""The description of the API: complete, true, and readable without the network."""

import re

import pytest
from pydantic import ValidationError

from server.api.chat_answers import ChatChunk, ChatCompletion, TextCompletion
from server.api.messages.answers import MessageAnswer, MessagesErrorReply, MessageTokenCount
from server.api.responses.answers import InputTokens, ItemPage, ResponseAnswer
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire.openapi import ERRORS
from server.wire.wire_error import ErrorReply
from tests.server.generate.test_stream import chunks
from tests.server.harness import CHAT, http_client, openapi_document
from tests.server.scripted.engine import scripted_model


def test_every_row_is_described_and_nothing_else() -> None:
    paths = openapi_document()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described == {(row.method, row.plain_path) for row in ENDPOINTS}


def test_nothing_answers_422() -> None:
    document = openapi_document()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    statuses = {status for one in operations for status in one["responses"]}
    assert "422" not in statuses and "HTTPValidationError" not in document["components"]["schemas"]


def test_every_reference_leads_somewhere_and_none_leads_out() -> None:
    document = openapi_document()
    references = set(re.findall(r"'\$ref': '([^']*)'", str(document)))
    schemas = document["components"]["schemas"]
    assert references and references <= {f"#/components/schemas/{name}" for name in schemas}
    assert not re.search(r"https?://", str(document))


def test_operation_ids_are_unique() -> None:
    paths = openapi_document()["paths"].values()
    ids = [operation["operationId"] for methods in paths for operation in methods.values()]
    assert len(ids) == len(set(ids)) == len(ENDPOINTS)


def test_every_error_has_the_schema_of_its_api() -> None:
    for path, methods in openapi_document()["paths"].items():
        expected = "MessagesErrorReply" if path.startswith("/v1/messages") else "ErrorReply"
        for operation in methods.values():
            for status in {str(status) for status in ERRORS} & operation["responses"].keys() - {"503"}:
                content = operation["responses"][status]["content"]
                assert content["application/json"]["schema"] == {"$ref": f"#/components/schemas/{expected}"}


def test_bodies_with_several_forms_say_so() -> None:
    properties = openapi_document()["components"]["schemas"]["ChatBody"]["properties"]
    assert {"messages", "model", "tools", "response_format", "temperature"} <= set(properties)


def test_bounds_and_short_forms_are_in_the_document() -> None:
    schemas = openapi_document()["components"]["schemas"]
    chat = schemas["ChatBody"]["properties"]
    assert (chat["n"]["minimum"], chat["n"]["maximum"]) == (1, 1024)
    assert "string" in [form.get("type") for form in chat["stop"]["anyOf"]]
    assert list(chat["logit_bias"]["patternProperties"]) == ["^[0-9]{1,10}$"]
    for body, field in (("UserMessage", "content"), ("UserTurn", "content"), ("ResponsesBody", "input")):
        assert {"type": "string"} in schemas[body]["properties"][field]["anyOf"]
    assert not re.search(r"'(ge|le|gt|lt)':", str(schemas))  # what pydantic writes where it knows no keyword


def test_an_event_of_a_stream_is_described_as_an_object() -> None:
    paths = openapi_document()["paths"]
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        event = paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        assert (event["type"], event["required"]) == ("object", ["data"])


async def test_the_document_and_its_page_are_served() -> None:
    async with http_client(scripted_model("x")) as client:
        document, page = await client.get("/openapi.json"), await client.get("/docs")
    assert document.json() == openapi_document()
    assert page.headers["content-type"].startswith("text/html")


async def test_the_page_loads_nothing_from_elsewhere() -> None:
    async with http_client(scripted_model("x")) as client:
        page = await client.get("/docs")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert not re.search(r"(https?:)?//[a-z]|innerHTML| on\w+=", page.text)


async def test_docs_are_closed_without_a_key() -> None:
    async with http_client(scripted_model("x"), ServingOptions(api_keys=("k",))) as client:
        assert [(await client.get(path)).status_code for path in ("/docs", "/openapi.json")] == [401, 401]


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": True, "top_logprobs": 2}])
async def test_chat_answers_are_as_described(more: dict[str, object]) -> None:
    async with http_client(scripted_model("Hello", " world")) as client:
        whole = await client.post("/v1/chat/completions", json={**CHAT, **more})
        body = {**CHAT, **more, "stream": True, "stream_options": {"include_usage": True}}
        streamed = await client.post("/v1/chat/completions", json=body)
    ChatCompletion.model_validate_json(whole.text)
    for chunk in chunks(streamed.text):
        ChatChunk.model_validate(chunk)


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": 2}, {"echo": True}])
async def test_completions_are_as_described(more: dict[str, object]) -> None:
    body = {"model": "scripted", "prompt": "Hi", **more}
    async with http_client(scripted_model("Hello", " world")) as client:
        whole = await client.post("/v1/completions", json=body)
        streamed = await client.post("/v1/completions", json={**body, "stream": True})
    TextCompletion.model_validate_json(whole.text)
    for chunk in chunks(streamed.text):
        TextCompletion.model_validate(chunk)


async def test_messages_and_responses_are_as_described() -> None:
    hello = {"model": "scripted", "messages": CHAT["messages"], "max_tokens": 9}
    async with http_client(scripted_model("Hello", " world")) as client:
        message = await client.post("/v1/messages", json=hello)
        refused = await client.post("/v1/messages", json={})
        count = await client.post("/v1/messages/count_tokens", json={**hello, "max_tokens": None})
        response = await client.post("/v1/responses", json={"model": "scripted", "input": "Hi"})
        items = await client.get(f"/v1/responses/{response.json()['id']}/input_items")
        tokens = await client.post("/v1/responses/input_tokens", json={"model": "scripted", "input": "Hi"})
    MessageAnswer.model_validate_json(message.text)
    MessagesErrorReply.model_validate_json(refused.text)
    MessageTokenCount.model_validate_json(count.text)
    ResponseAnswer.model_validate_json(response.text)
    ItemPage.model_validate_json(items.text)
    InputTokens.model_validate_json(tokens.text)


async def test_errors_are_as_described() -> None:
    async with http_client(scripted_model("x")) as client:
        answers = [
            await client.post("/v1/chat/completions", json={}),
            await client.post("/v1/chat/completions", content=b"x"),
            await client.get("/nothing"),
            await client.get("/v1/chat/completions"),
            await client.get("/v1/models", headers={"Host": "evil.example"}),
        ]
    assert [answer.status_code for answer in answers] == [400, 415, 404, 405, 403]
    for answer in answers:
        ErrorReply.model_validate_json(answer.text)


def test_the_description_is_strict() -> None:
    with pytest.raises(ValidationError):
        ErrorReply.model_validate({"error": {"message": "m", "type": "t", "param": None, "code": None}})
