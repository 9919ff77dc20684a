"""Names and web pages: what a browser that was led here by a foreign site can and cannot do."""

import pytest

from server.settings import ServingOptions
from server.wire.sites import Sites, host_name
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, scripted_model

PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os,dangerously-allow-browser",
}
KEYED = ServingOptions(api_keys=("k",))
PAGE = "https://chat.example.org"


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("localhost:8080", "localhost"),
        ("LOCALHOST.", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("::1", "::1"),
        ("evil.example:80", "evil.example"),
        ("localhost.evil.example", "localhost.evil.example"),
        ("", ""),
    ],
)
def test_a_host_header_names_a_host(authority: str, name: str) -> None:
    assert host_name(authority) == name


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LocalHost"])
async def test_this_machine_is_known_by_its_names(host: str) -> None:
    async with http_client(scripted_model("x")) as client:
        assert (await client.get("/v1/models", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
async def test_a_rebound_name_is_refused(host: str) -> None:
    model = ScriptedModel()
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT, headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert model.service.requests == []


async def test_configured_names_and_the_bind_address_are_known() -> None:
    options = ServingOptions(host="127.0.0.5", allowed_hosts=("octavo.example.org", "box:8080"))
    async with http_client(scripted_model("x"), options) as client:
        for host in ("127.0.0.5:8080", "octavo.example.org", "box", "octavo.localhost:8080"):
            assert (await client.get("/v1/models", headers={"Host": host})).status_code == 200
        for host in ("127.0.0.6", "octavo", "evil.example", "octavo.default.svc.cluster.local"):
            assert (await client.get("/v1/models", headers={"Host": host})).status_code == 403


@pytest.mark.parametrize("listens", ["0.0.0.0", "::", "192.168.1.5", "fe80::1", "box.example.org"])
def test_a_server_that_was_opened_takes_any_name(listens: str) -> None:
    """NB-22."""
    sites = Sites(listens)
    for host in ("octavo:8080", "octavo.default.svc.cluster.local", "host.docker.internal:8080", "10.1.2.3", ""):
        assert sites.knows_host(host)


@pytest.mark.parametrize(
    ("host", "origin", "is_ours"),
    [
        ("octavo:8080", "http://octavo:8080", True),
        ("octavo:8080", "http://octavo:8081", False),
        ("box.local", "https://box.local", True),
        ("10.1.2.3:8080", "http://10.1.2.3:8080", True),
        ("[fe80::1]:8080", "http://[fe80::1]:8080", True),
        ("evil.example:8080", "http://evil.example:8080", False),
        ("local.evil.example", "http://local.evil.example", False),
    ],
)
def test_on_an_open_server_a_page_of_ours_has_a_name_that_cannot_be_bought(
    host: str, origin: str, is_ours: bool
) -> None:
    """NB-22: a name of somebody else's that leads to us is a page that was rebound."""
    assert Sites("0.0.0.0").serves_origin(origin, host) is is_ours


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/ready", "/v1/ready", "/", "/health/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_probes_are_answered_by_whatever_name(method: str, path: str) -> None:
    """NB-22: they hold no data."""
    async with http_client(scripted_model("x")) as client:
        answer = await client.request(method, path, headers={"Host": "octavo:8080", "Origin": "https://a.example"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [
        *("http://localhost:5173", "http://127.0.0.1", "https://localhost", "http://[::1]:3000"),
        *("http://tauri.localhost", "https://tauri.localhost", "http://app.localhost:3000"),
        *("app://obsidian.md", "app://.", "app://-", "tauri://localhost", "capacitor://localhost", "ionic://localhost"),
        *("vscode-webview://1a2b3c", "vscode-file://vscode-app", "file://", "APP://Obsidian.md", "electron://altair"),
    ],
)
@pytest.mark.parametrize("options", [ServingOptions(), KEYED])
async def test_pages_of_this_machine_may_call_and_read(origin: str, options: ServingOptions) -> None:
    """NB-21: those of a local server, and those of desktop programs."""
    headers = {"Origin": origin, **({"Authorization": "Bearer k"} if options.api_keys else {})}
    async with http_client(scripted_model("x"), options) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        preflight = await client.options("/v1/chat/completions", headers={"Origin": origin, **PREFLIGHT})
    assert (answer.status_code, preflight.status_code) == (200, 200)
    assert preflight.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-origin"] == origin
    assert "Origin" in answer.headers["vary"]
    exposed = answer.headers["access-control-expose-headers"]
    assert all(name in exposed for name in ("x-request-id", "x-ignored-params", "retry-after"))


FOREIGN = [
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://localhost:5173.evil.example",
    "http://localhost@evil.example",
    "http://localhost:999999",
    "http://tauri.localhost.evil.example",
    "http://tauri-localhost",
    "http://.localhost",
    "https+app://x",
    "chrome-extension://abcdef",
    "web+app://x",
    "app:evil",
    "app://x@evil.example",
    "app://x/https://evil.example",
    "app://x https://evil.example",
    "ftp://localhost",
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_pages_of_other_sites_are_refused_without_a_key(origin: str, method: str) -> None:
    model = ScriptedModel()
    async with http_client(model) as client:
        answer = await client.request(method, "/v1/chat/completions", headers={"Origin": origin, **PREFLIGHT})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in answer.headers
    assert model.service.requests == []


async def test_a_page_that_we_serve_under_an_allowed_name_may_call() -> None:
    options = ServingOptions(allowed_hosts=("box",))
    async with http_client(scripted_model("x"), options) as client:
        headers = {"Host": "box:8080", "Origin": "http://box:8080"}
        assert (await client.get("/v1/models", headers=headers)).status_code == 200
        headers["Origin"] = "http://box:8081"
        assert (await client.get("/v1/models", headers=headers)).status_code == 403


@pytest.mark.parametrize("options", [ServingOptions(), KEYED])
async def test_a_preflight_is_answered_without_a_key(options: ServingOptions) -> None:
    """BB-067."""
    headers = {"Origin": "http://localhost:5173", **PREFLIGHT}
    async with http_client(scripted_model("x"), options) as client:
        answer = await client.options("/v1/chat/completions", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"
    allowed = answer.headers["access-control-allow-headers"].split(",")
    assert set(PREFLIGHT["Access-Control-Request-Headers"].split(",")) <= set(allowed)
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_errors_can_be_read_by_trusted_pages_too() -> None:
    """BB-067."""
    headers = {"Origin": "http://localhost:5173", "Authorization": "Bearer wrong"}
    async with http_client(scripted_model("x"), KEYED) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"


async def test_with_keys_other_pages_get_no_cors_headers_and_no_preflight() -> None:
    """BB-067."""
    async with http_client(scripted_model("x"), KEYED) as client:
        preflight = await client.options("/v1/models", headers={"Origin": PAGE, **PREFLIGHT})
        read = await client.get("/v1/models", headers={"Origin": PAGE, "X-Api-Key": "k", "Host": "anything"})
    assert (preflight.status_code, preflight.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in preflight.headers
    # The key is what counts; whether the page may read the answer is the browser's to enforce.
    assert read.status_code == 200 and "access-control-allow-origin" not in read.headers


async def test_configured_pages_may_call() -> None:
    options = ServingOptions(cors_origins=(f"{PAGE}/",))
    async with http_client(scripted_model("x"), options) as client:
        answer = await client.get("/v1/models", headers={"Origin": PAGE})
        network = {"Origin": PAGE, **PREFLIGHT, "Access-Control-Request-Private-Network": "true"}
        preflight = await client.options("/v1/models", headers=network)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert preflight.headers["access-control-allow-private-network"] == "true"


async def test_a_star_lets_every_page_call_without_credentials() -> None:
    async with http_client(scripted_model("x"), ServingOptions(cors_origins=("*",))) as client:
        answer = await client.get("/v1/models", headers={"Origin": "https://any.example", "Cookie": "a=b"})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_preflight_for_a_method_of_no_path_has_our_error_shape() -> None:
    headers = {"Origin": "http://localhost", "Access-Control-Request-Method": "PATCH"}
    async with http_client(scripted_model("x")) as client:
        answer = await client.options("/v1/models", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cors_method")
