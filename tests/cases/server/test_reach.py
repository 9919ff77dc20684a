"""Area http: by which name, from which page and below which path the server is reached."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.settings import ServingOptions
from tests.cases.real import CHAT_PATH, HI, RealServer, serving, tiny_model

ASK = {"messages": HI, "max_tokens": 1}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
APPS = (
    "app://obsidian.md",
    "tauri://localhost",
    "http://tauri.localhost",
    "capacitor://localhost",
    "vscode-webview://1abc",
    "file://",
)
STRANGERS = ("null", "https://evil.example", "http://localhost.evil.example", "https://app.obsidian.md")
NAMES = ("octavo:8080", "octavo.default.svc.cluster.local", "host.docker.internal:8080", "llm.example.org")


@pytest.fixture(scope="module", params=["no key", "a key"])
def reached(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    keys = ("secret",) if request.param == "a key" else ()
    with serving(
        tiny_model(tmp_path_factory.mktemp("models"), "plain"), ServingOptions(api_keys=keys, drain_seconds=0)
    ) as server:
        server.http.headers["Authorization"] = "Bearer secret"
        yield server


@pytest.mark.parametrize("origin", APPS)
def test_a_desktop_program_may_ask_and_read(reached: RealServer, origin: str) -> None:
    """NB-21: a page whose scheme no web site can have is one of this machine."""
    preflight = reached.http.options(CHAT_PATH, headers={"Origin": origin, **PREFLIGHT})
    answer = reached.post(CHAT_PATH, ASK, Origin=origin)
    refused = reached.post(CHAT_PATH, {"messages": []}, Origin=origin)
    assert [preflight.status_code, answer.status_code, refused.status_code] == [200, 200, 400]
    for told in (preflight, answer, refused):
        assert told.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize("origin", STRANGERS)
def test_other_pages_stay_out(reached: RealServer, origin: str) -> None:
    """NB-21: also pages that hide their origin."""
    preflight = reached.http.options(CHAT_PATH, headers={"Origin": origin, **PREFLIGHT})
    answer = reached.post(CHAT_PATH, ASK, Origin=origin)
    assert preflight.status_code == 403
    assert answer.status_code == (200 if _has_key(reached) else 403)
    for told in (preflight, answer):
        assert "access-control-allow-origin" not in told.headers


def _has_key(server: RealServer) -> bool:
    return server.http.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401


@pytest.mark.parametrize("listens", ["0.0.0.0", "::", "192.168.1.5"])
def test_a_server_that_was_opened_takes_the_names_of_others(tmp_path: Path, listens: str) -> None:
    """NB-22: a container is called by a name that its server cannot know; pages of other sites stay out."""
    options = ServingOptions(host=listens, drain_seconds=0)
    with serving(tiny_model(tmp_path, "plain"), options) as server:
        for name in NAMES:
            assert server.post(CHAT_PATH, ASK, Host=name).status_code == 200
            assert server.http.get("/health", headers={"Host": name}).status_code == 200
            assert server.post(CHAT_PATH, ASK, Host=name, Origin="https://evil.example").status_code == 403
        rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert server.post(CHAT_PATH, ASK, **rebound).status_code == 403


def test_a_server_of_this_machine_alone_takes_no_foreign_name_but_answers_probes(plain: RealServer) -> None:
    """NB-22: a name that leads to 127.0.0.1 may be one that a web site gave it."""
    for name in NAMES:
        assert plain.post(CHAT_PATH, ASK, Host=name).status_code == 403
        for path in ("/health", "/ready", "/v1/health"):
            assert plain.http.get(path, headers={"Host": name}).status_code == 200
