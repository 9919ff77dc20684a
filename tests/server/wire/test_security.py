"""API keys: what is closed without one, however the path is written, and what a key may look like."""

import logging
from pathlib import Path

import httpx
import pytest

from server.app import create_app
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire.security import ApiKeys, KeyFileError, read_key_file
from tests.server.harness import CHAT, http_client, ready_serving
from tests.server.scripted.engine import ScriptedModel, scripted_model

KEY = "sk-test-1"
KEYED = ServingOptions(api_keys=(KEY, "another"))

CLOSED = sorted({one.plain_path.replace("{", "").replace("}", "") for one in ENDPOINTS if not one.is_open})
TRICKS = [
    "//v1/models",
    "/v1//models",
    "/v1/models/",
    "/models",
    "/models/",
    "/./v1/models",
    "/health/../v1/models",
    "/health/v1/models",
    "/v1/models?path=/health",
    "/v1/models;/health",
    "/v1/models#/health",
    "/%76%31/models",
    "/V1/MODELS",
    "/v1/models%00/health",
    "/nothing/here",
    "/docs/",
]


@pytest.mark.parametrize("path", CLOSED + TRICKS)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "DELETE"])
async def test_every_path_but_the_open_ones_needs_a_key(path: str, method: str) -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        answer = await client.request(method, path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_answer_without_a_key_has_the_shape_of_all_errors() -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", ["/", "/health", "/ready"])
async def test_probes_stay_open(path: str) -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        assert (await client.get(path)).status_code == 200


async def test_the_host_header_does_not_change_what_is_judged() -> None:
    """A URL rebuilt from a crafted Host has another path; scope["path"] has not."""
    async with http_client(scripted_model("x"), KEYED) as client:
        for host in ("localhost/health?", "localhost/health#", "x@localhost/health", "/health"):
            assert (await client.get("/v1/models", headers={"Host": host})).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer   {KEY} "},
        {"X-Api-Key": KEY},
        {"X-Api-Key": "another"},
        {"Authorization": "Bearer wrong", "X-Api-Key": KEY},
    ],
)
async def test_a_known_key_opens_in_either_header(headers: dict[str, str]) -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        assert (await client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"X-Api-Key": ""},
        {"Cookie": f"key={KEY}"},
    ],
)
async def test_anything_else_does_not(headers: dict[str, str]) -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        assert (await client.get("/v1/models", headers=headers)).status_code == 401


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_keys_beyond_ascii_work_in_both_encodings_of_headers(encoding: str) -> None:
    options = ServingOptions(api_keys=("schlüssel",))
    async with http_client(scripted_model("x"), options) as client:
        right = await client.get("/v1/models", headers={b"x-api-key": "schlüssel".encode(encoding)})
        wrong = await client.get("/v1/models", headers={b"x-api-key": "schlössel".encode(encoding)})
    assert (right.status_code, wrong.status_code) == (200, 401)


async def test_any_bytes_may_be_offered_as_a_key() -> None:
    async with http_client(scripted_model("x"), KEYED) as client:
        for raw in (b"\xff\xfe", bytes(range(128, 256)), b"\xc3\x28"):
            assert (await client.get("/v1/models", headers={b"authorization": b"Bearer " + raw})).status_code == 401


async def test_callers_are_told_apart_by_a_hash_of_their_key() -> None:
    keys = ApiKeys(["a", "b"])
    callers = {keys.caller([(b"x-api-key", key)]) for key in (b"a", b"b")}
    assert len(callers) == 2 and not callers & {None, "a", "b"}
    assert keys.caller([(b"x-api-key", b"c")]) is None


async def test_a_closed_server_does_no_work_for_strangers() -> None:
    model = ScriptedModel()
    async with http_client(model, KEYED) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 401
    assert model.service.requests == []


async def test_keys_never_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with http_client(scripted_model("x"), KEYED) as client:
        await client.post("/v1/chat/completions", json=CHAT, headers={"X-Api-Key": KEY})
        await client.post("/v1/chat/completions", json=CHAT, headers={"X-Api-Key": "another-secret"})
    assert KEY not in caplog.text and "another-secret" not in caplog.text
    assert KEY not in repr(KEYED)


async def test_headers_keep_browsers_from_guessing_types() -> None:
    transport = httpx.ASGITransport(app=create_app(await ready_serving(scripted_model("x"), KEYED)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/", "/v1/models", "/nothing"):
            assert (await client.get(path)).headers["x-content-type-options"] == "nosniff"


def test_a_key_file_has_one_key_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\n\n  first  \nsecond\n#third\n")
    assert read_key_file(path) == ("first", "second")


@pytest.mark.parametrize("content", [b"", b"# nothing\n\n", b"\xff\xfe\xff"])
def test_a_key_file_without_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(KeyFileError, match="keys"):
        read_key_file(path)


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"No such file.*--api-key-file"):
        read_key_file(tmp_path / "none")
