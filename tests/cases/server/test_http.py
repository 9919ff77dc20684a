"""Area http: whatever a client asks for, it hears of it in JSON, from the model that it named.

CORS and the paths in all their spellings (BB-067, BB-068) are tested beside the server's middleware.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server.settings import ServingOptions
from tests.cases.real import CHAT_PATH, HI, TEXT_PATH, Json, RealServer, serving, tiny_model

ORIGIN = "http://localhost:5173"
BODIES: dict[str, Json] = {
    CHAT_PATH: {"messages": HI, "max_tokens": 1},
    TEXT_PATH: {"prompt": "x", "max_tokens": 1},
    "/v1/embeddings": {"input": "x"},
    "/v1/responses": {"input": "x", "max_output_tokens": 16},
    "/v1/messages": {"messages": HI, "max_tokens": 1},
}


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with aliases, of a model in a folder deep down."""
    folder = tmp_path_factory.mktemp("secret-home") / "models"
    folder.mkdir()
    with serving(tiny_model(folder, "plain"), aliases=("gpt-4o", "org/name:tag")) as server:
        yield server


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", ["ghost-model-7", "", "PLAIN", "plain ", "../plain", "gpt-4", "*"])
def test_a_name_that_is_not_served_is_told_those_that_are(named: RealServer, path: str, name: str) -> None:
    """BB-070: 200, with the asked name, from another model."""
    answer = named.http.post(path, json={**BODIES[path], "model": name})
    error = answer.json()["error"]
    assert answer.status_code == 404
    for served in ("plain", "gpt-4o", "org/name:tag"):
        assert served in error["message"]
    if path != "/v1/messages":  # whose errors have the shape of Anthropic's
        assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_every_listed_name_works_and_is_answered_with_the_models_own(named: RealServer) -> None:
    """BB-070: no id tells where the file lies."""
    ids = [card["id"] for card in named.http.get("/v1/models").json()["data"]]
    assert ids == ["plain", "gpt-4o", "org/name:tag"]
    for name in ids:
        answer = named.http.post(CHAT_PATH, json={**BODIES[CHAT_PATH], "model": name})
        assert (answer.status_code, answer.json()["model"]) == (200, "plain")
        assert named.http.get(f"/v1/models/{name}").json()["id"] == name
    assert "secret-home" not in named.http.get("/v1/models").text + named.http.get("/props").text


def test_any_model_is_an_explicit_choice(tmp_path: Path) -> None:
    """BB-070: and the answer says all the same who gave it."""
    options = ServingOptions(any_model=True, drain_seconds=0)
    with serving(tiny_model(tmp_path, "plain"), options) as server:
        answer = server.http.post(CHAT_PATH, json={**BODIES[CHAT_PATH], "model": "ghost-model-7"})
    assert (answer.status_code, answer.json()["model"]) == (200, "plain")


PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os,dangerously-allow-browser",
}


def test_a_page_of_this_machine_may_ask_with_a_key(tmp_path: Path) -> None:
    """BB-067: the preflight needs the key, or the headers of SDKs are not allowed; errors lack the headers too."""
    options = ServingOptions(api_keys=("secret",), drain_seconds=0)
    with serving(tiny_model(tmp_path, "plain"), options) as server:
        preflight = server.http.options(CHAT_PATH, headers=PREFLIGHT)
        asked = {"Origin": ORIGIN, "Authorization": "Bearer secret"}
        good = server.post(CHAT_PATH, {"messages": HI, "max_tokens": 1}, **asked)
        bad = server.post(CHAT_PATH, {"messages": []}, **asked)
        closed = server.post(CHAT_PATH, {"messages": HI}, Origin=ORIGIN, Authorization="Bearer wrong")
        foreign = server.http.options(CHAT_PATH, headers={**PREFLIGHT, "Origin": "https://evil.example"})
        other = server.post(CHAT_PATH, {"messages": HI, "max_tokens": 1}, **{**asked, "Origin": "https://evil.example"})
    assert preflight.status_code in (200, 204)
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in PREFLIGHT["Access-Control-Request-Headers"].split(",")) or allowed == "*"
    assert [good.status_code, bad.status_code, closed.status_code] == [200, 400, 401]
    for answer in (preflight, good, bad, closed):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers
    for answer in (foreign, other):
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", [f"{CHAT_PATH}/", f"/{CHAT_PATH}", "/v1//chat/completions", "/chat/completions"])
def test_a_path_with_slashes_too_many_is_answered_and_not_redirected(plain: RealServer, path: str) -> None:
    """BB-068: a redirect drops the body, or the key."""
    url = httpx.URL(plain.live.url).copy_with(raw_path=path.encode())
    answer = plain.http.post(url, json={"model": "plain", "messages": HI, "max_tokens": 1}, follow_redirects=False)
    assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
