"""Paths as clients write them: aliases, slashes, methods; never a redirect, never an HTML error."""

import pytest

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import scripted_model


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/chat/completions/",
        "/chat/completions//",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "///v1///chat///completions///",
    ],
)
async def test_slashes_and_the_missing_prefix_lead_to_the_same_answer(path: str) -> None:
    """BB-068."""
    async with http_client(scripted_model("Hello")) as client:
        answer = await client.post(f"http://localhost{path}", json=CHAT, follow_redirects=False)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("path", ["/models", "/v1/models", "/models/", "/v1/models/scripted/", "/models/gpt-4o"])
async def test_models_are_listed_with_and_without_the_prefix(path: str) -> None:
    async with http_client(scripted_model("x")) as client:
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/nope", "/v1", "/v1/chat", "/index.html", "/v2/models", "/.env", "/v1/../etc/passwd"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path_is_404_in_our_shape(method: str, path: str) -> None:
    """BB-068."""
    async with http_client(scripted_model("x")) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("HEAD", "/v1/completions", "POST"),
        ("PUT", "/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/health", "GET"),
        ("POST", "/", "GET"),
        ("OPTIONS", "/v1/models", "GET"),
        ("QUERY", "/metrics", "GET"),
    ],
)
async def test_a_wrong_method_is_405_with_the_right_one(method: str, path: str, allowed: str) -> None:
    """BB-068."""
    async with http_client(scripted_model("x")) as client:
        answer = await client.request(method, path)
    assert answer.status_code == 405
    assert allowed in answer.headers["allow"]
    assert method == "HEAD" or answer.json()["error"]["code"] == "method_not_allowed"
