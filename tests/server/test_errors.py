"""Every way to be wrong is answered in the OpenAI shape, by a code and a path."""

from typing import Any

import httpx
import pytest

from server.serving import Serving
from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, ScriptedService, scripted_model


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object, after checking its shape."""
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert isinstance(error["message"], str) and error["message"].endswith((".", "…"))
    kinds = {"invalid_request_error", "authentication_error", "not_found_error", "rate_limit_error", "server_error"}
    assert error["type"] in kinds
    assert answer.headers["content-type"] == "application/json"
    return error


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "unknown_url"),
        ("POST", "/v1/audio/transcriptions", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
    ],
)
async def test_wrong_paths_and_methods(method: str, path: str, status: int, code: str) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


async def test_405_names_the_method_that_works() -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.get("/v1/completions")
    assert answer.headers["allow"] == "POST" and "POST" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"model": "\xff"}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"null", "invalid_type"),
        (b"[]", "invalid_type"),
        (b"5", "invalid_type"),
        (b'"x"', "invalid_type"),
        (b"{}", "missing_required_parameter"),
    ],
)
async def test_bodies_that_are_no_request(raw: bytes, code: str) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, code)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_other_media_types_are_415(content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", content=b"{}", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        ({"model": 5}, "model", "invalid_type"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "array_below_min_length"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"messages": [5]}, "messages[0]", "invalid_type"),
        ({"messages": [{}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id", "missing_required_parameter"),
        ({"messages": [*CHAT["messages"], {"role": "user", "content": [{}]}]}, "messages[1].content[0].type", "*"),
        ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
        ({"temperature": -1}, "temperature", "decimal_below_min_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": 0}, "top_p", "decimal_below_min_value"),
        ({"top_k": -2}, "top_k", "integer_below_min_value"),
        ({"top_k": 1.5}, "top_k", "invalid_type"),
        ({"min_p": 1.1}, "min_p", "decimal_above_max_value"),
        ({"seed": 2**63}, "seed", "integer_above_max_value"),
        ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": 2**40}, "max_tokens", "integer_above_max_value"),
        ({"stop": ""}, "stop", "string_below_min_length"),
        ({"stop": ["a", ""]}, "stop[1]", "string_below_min_length"),
        ({"stop": ["a"] * 17}, "stop", "array_above_max_length"),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "invalid_type"),
        ({"chat_template_kwargs": {"__class__": 1}}, "chat_template_kwargs.__class__", "invalid_value"),
    ],
)
async def test_bad_values_are_named_by_path_and_code(change: dict[str, Any], param: str, code: str) -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **change})
    error = error_of(answer)
    assert (answer.status_code, error["param"]) == (400, param)
    assert code in ("*", error["code"])
    assert model.service.requests == []


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
async def test_media_parts_are_refused_by_index(kind: str) -> None:
    content = [{"type": "text", "text": "what is this?"}, {"type": kind, kind: {"url": "http://example.com/a.png"}}]
    async with http_client(scripted_model("x")) as client:
        answer = await client.post(
            "/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": content}]}
        )
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == ("messages[0].content[1]", "unsupported_value")


async def test_a_large_bad_body_has_a_small_answer() -> None:
    messages = [{"role": "user", "content": 5, "padding": "y" * 1000}] * 1000
    body = {**CHAT, "messages": messages, "model": "x" * 100_000, "temperature": "z" * 100_000}
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json=body)
        unknown = await client.post("/v1/chat/completions", json={**CHAT, "model": "x" * 100_000})
        wrong = await client.post("/v1/chat/completions", json={**CHAT, "temperature": "x" * 100_000})
    assert [answer.status_code, unknown.status_code, wrong.status_code] == [400, 404, 400]
    assert max(len(answer.content), len(unknown.content), len(wrong.content)) < 1000


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_413_with_or_without_a_declared_length(declared: bool) -> None:
    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    content: Any = b" " * 10_000 if declared else pieces()
    async with http_client(scripted_model("x"), ServingOptions(max_body_bytes=5000)) as client:
        answer = await client.post(
            "/v1/chat/completions", content=content, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")


async def test_a_fault_of_ours_is_a_plain_500() -> None:
    class Broken(ScriptedService):
        def submit(self, *requests: Any) -> Any:
            raise ZeroDivisionError("secret")

    async with http_client(ScriptedModel(Broken()), raise_app_exceptions=False) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "abc"})
    assert answer.status_code == 500 and "secret" not in answer.text
    assert error_of(answer)["type"] == "server_error"
    assert (answer.headers["x-should-retry"], answer.headers["x-request-id"]) == ("false", "abc")


async def test_before_the_model_is_loaded_requests_are_503() -> None:
    from server.app import create_app

    serving = Serving(lambda _: scripted_model("x"))
    transport = httpx.ASGITransport(app=create_app(serving))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
        models = await client.get("/v1/models")
    assert answer.status_code == models.status_code == 503
    assert "retry-after" in answer.headers and error_of(answer)["type"] == "server_error"


@pytest.mark.parametrize(
    ("sent", "kept"), [("my-id_1.2:3/4", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("é", False)]
)
async def test_a_sane_request_id_is_echoed_and_others_are_replaced(sent: str, kept: bool) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.get("/health", headers=[(b"x-request-id", sent.encode("latin-1"))])
    assert (answer.headers["x-request-id"] == sent) is kept
    assert answer.headers["x-request-id"]


async def test_every_answer_has_a_date() -> None:
    async with http_client(scripted_model("x")) as client:
        for path in ("/health", "/nope"):
            assert (await client.get(path)).headers["date"].endswith("GMT")
