"""Recorded cases of what goes wrong in each dialect, and of pages of other origins."""

from typing import Any

from server.settings import ServingOptions
from tests.server.harness import CHAT
from tests.server.recorded_cases.exchange import JSON_TYPE, Build, Call, Case, says
from tests.server.scripted.engine import ScriptedModel, ScriptedService

KEYED = ServingOptions(api_keys=("sk-1", "sk-2"))
PAGE = "https://chat.example.org"
LOCAL = {"origin": "http://localhost:5173"}
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "scripted", "prompt": "a"},
    "/v1/messages": {**CHAT, "max_tokens": 9},
    "/v1/messages/count_tokens": CHAT,
    "/v1/responses": {"model": "scripted", "input": "Hi"},
    "/v1/embeddings": {"model": "scripted", "input": "a"},
    "/tokenize": {"content": "a"},
}
CHATS = "/v1/chat/completions"
SHORT = says("x")


class Broken(ScriptedService):
    """A fault that nobody has foreseen."""

    def check_room(self, count: int) -> None:
        raise ZeroDivisionError("secret")


def broken() -> ScriptedModel:
    return ScriptedModel(Broken())


def full() -> ScriptedModel:
    return ScriptedModel(ScriptedService(max_open=0))


def stop(model: ScriptedModel) -> None:
    model.service.started = False


def of_each(name: str, model: Build = SHORT, **more: Any) -> Case:
    """The same thing in every dialect."""
    sent = tuple(Call(path=path, body=body) for path, body in BODIES.items())
    return Case(api="errors", name=name, calls=sent, model=model, **more)


def raw_of_each(name: str, content: bytes, headers: dict[str, str]) -> Case:
    sent = tuple(Call(path=path, body=content, headers=headers) for path in BODIES)
    return Case(api="errors", name=name, calls=sent)


def altered(name: str, **change: Any) -> Case:
    sent = tuple(Call(path=path, body={**body, **change}) for path, body in BODIES.items())
    return Case(api="errors", name=name, calls=sent)


def bad_chat(name: str, **change: Any) -> Case:
    return Case(api="errors", name=f"chat: {name}", calls=(Call(path=CHATS, body={**CHAT, **change}),))


def asked(name: str, *calls: Call, options: ServingOptions | None = None) -> Case:
    return Case(api="sites", name=name, calls=calls, model=says("x"), options=options)


def method(name: str, path: str, **headers: str) -> Call:
    return Call(method=name, path=path, headers=headers)


def preflight(**headers: str) -> Call:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return Call(method="OPTIONS", path=CHATS, headers={**PREFLIGHT, **given})


CHAT_FROM_HERE = Call(path=CHATS, body=CHAT, headers=LOCAL)

CASES: list[Case] = [
    raw_of_each("malformed JSON", b'{"model": ', JSON_TYPE),
    raw_of_each("no body", b"", JSON_TYPE),
    raw_of_each("no object", b"[]", JSON_TYPE),
    raw_of_each("JSON that is nested too deep", b"[" * 200, JSON_TYPE),
    raw_of_each("an empty object", b"{}", JSON_TYPE),
    raw_of_each("another media type", b"{}", {"content-type": "text/plain"}),
    raw_of_each("no media type", b"{}", {}),
    altered("an unknown model", model="ghost"),
    altered("a model of the wrong type", model=5),
    of_each("a body that is too large", options=ServingOptions(max_body_bytes=10)),
    of_each("no key where one is needed", options=KEYED),
    of_each("a full queue", full),
    of_each("an engine that is stopping", prepare=stop),
    of_each("a fault of the server", broken),
    bad_chat("several problems", temperature="hot", top_p=0, n="many"),
    bad_chat("no messages", messages=[]),
    bad_chat("a message without content", messages=[{"role": "user"}]),
    bad_chat("an unknown role", messages=[{"role": "wizard", "content": ""}]),
    bad_chat("an image", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    bad_chat("temperature above its bound", temperature=2.5),
    bad_chat("n above the server's bound", n=100),
    bad_chat("top_logprobs without logprobs", top_logprobs=2),
    bad_chat("stream_options without a stream", stream_options={"include_usage": True}),
    bad_chat("tool_choice without tools", tool_choice="required"),
    bad_chat("a parameter that is refused", audio={"voice": "x"}, modalities=["audio"]),
    bad_chat("a prompt that is too long", messages=[{"role": "user", "content": "x" * 5000}]),
    bad_chat("a prompt that is too long, streamed", messages=[{"role": "user", "content": "x" * 5000}], stream=True),
    bad_chat("what the template refuses", messages=[{"role": "user", "content": "refuse me"}]),
    Case(
        api="errors",
        name="chat: a model without a template",
        calls=(Call(path=CHATS, body=CHAT),),
        model=lambda: ScriptedModel(template=None),
    ),
    Case(
        api="errors",
        name="unknown paths",
        calls=tuple(
            method(name, path)
            for name, path in (
                ("GET", "/nope"),
                ("POST", "/v1/audio/transcriptions"),
                ("GET", "/v1/messages/nope"),
                ("POST", "/v1"),
            )
        ),
    ),
    Case(
        api="errors",
        name="methods that a path does not take",
        calls=(
            *(method("GET", path) for path in BODIES),
            *(method("PUT", path) for path in BODIES),
            *(method("POST", path) for path in ("/", "/health", "/slots", "/props", "/metrics", "/docs")),
            method("DELETE", "/v1/models"),
            method("PATCH", "/v1/responses/resp_none"),
            method("OPTIONS", CHATS),
        ),
    ),
    asked("a key in either header", method("GET", "/slots", authorization="Bearer sk-1"), options=KEYED),
    asked(
        "keys of other forms",
        Call(method="GET", path="/v1/models", headers={"x-api-key": "sk-2"}),
        Call(method="GET", path="/v1/models", headers={"authorization": "Basic sk-1"}),
        Call(method="GET", path="/v1/models", headers={"x-api-key": "wrong"}),
        method("GET", "/health"),
        method("GET", "/docs"),
        method("GET", "/nope"),
        options=KEYED,
    ),
    asked("a request id that is echoed", Call(path=CHATS, body=CHAT, headers={"x-request-id": "my-id_1"})),
    asked("a foreign host", method("GET", "/v1/models", host="evil.example")),
    asked("a page of this machine", CHAT_FROM_HERE, method("GET", "/nope", **LOCAL)),
    asked("a page of another site", method("GET", "/v1/models", origin=PAGE), preflight(origin=PAGE)),
    asked(
        "a page that is trusted", method("GET", "/v1/models", origin=PAGE), options=ServingOptions(cors_origins=(PAGE,))
    ),
    asked("any page", method("GET", "/v1/models", origin=PAGE), options=ServingOptions(cors_origins=("*",))),
    asked("a preflight", preflight(**LOCAL), preflight(**LOCAL, access_control_request_private_network="true")),
    asked("a preflight where keys are needed", preflight(**LOCAL), CHAT_FROM_HERE, options=KEYED),
    asked("a preflight for a method of no path", preflight(**LOCAL, access_control_request_method="PATCH")),
]
