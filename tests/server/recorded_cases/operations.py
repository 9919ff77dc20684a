"""Recorded cases of the routes that tell of the server and its model, and of the one that cancels."""

import json
import re
from dataclasses import replace
from typing import Any

from engine.run.status import EngineStatus, LaneStatus
from server.settings import ServingOptions
from tests.server.harness import CHAT
from tests.server.recorded_cases.exchange import Build, Call, Case, View, says
from tests.server.scripted.engine import ScriptedModel

CHATS = "/v1/chat/completions"
FOREVER = 3600.0  # seconds; whoever waits for it is cancelled
SHORT = says("x")
MINE = {"x-request-id": "mine"}
VALUES = re.compile(r"(?m)^([^#\n].*) [^ \n]+$")
VERSIONS = re.compile(r'(version=")[^"]*(")')


def got(name: str, *paths: str, method: str = "GET", model: Build = SHORT, **more: Any) -> Case:
    sent = tuple(Call(method=method, path=path) for path in paths)
    return Case(api="operations", name=name, calls=sent, model=model, **more)


def metric_names(body: str) -> str:
    """Each figure without its value, and the build without its version."""
    return VERSIONS.sub(r"\1<version>\2", VALUES.sub(r"\1 <value>", body))


def paths_and_schemas(body: str) -> str:
    document = json.loads(body)
    paths = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    return "\n".join([*sorted(paths), *(f"schema {name}" for name in sorted(document["components"]["schemas"]))])


def kill(model: ScriptedModel) -> None:
    model.service.condition = replace(model.service.status(), alive=False)


def occupy(model: ScriptedModel) -> None:
    lanes = (
        LaneStatus("fresh", prompt_tokens=10, computed_tokens=4, generated_tokens=0, cached_tokens=4),
        LaneStatus("decoding", prompt_tokens=10, computed_tokens=12, generated_tokens=3),
        LaneStatus("another's", prompt_tokens=10, computed_tokens=8, generated_tokens=3, caller=b"\1" * 32),
    )
    model.service.condition = EngineStatus(lanes=4, running=lanes, waiting=0, blocks=9, free_blocks=0)


def cancelled(name: str, path: str, *, stream: bool, headers: dict[str, str]) -> Case:
    running = Call(path=path, body={**BODIES[path], "stream": stream}, headers=MINE, runs_on=True)
    cancel = Call(path="/v1/requests/mine/cancel", headers=headers)
    return Case(api="operations", name=name, calls=(running, cancel), model=says("Hello", FOREVER, "never"))


BODIES: dict[str, dict[str, Any]] = {
    CHATS: CHAT,
    "/v1/completions": {"model": "scripted", "prompt": "a"},
    "/v1/messages": {**CHAT, "max_tokens": 9},
    "/v1/responses": {"model": "scripted", "input": "Hi"},
}
METRICS: View = metric_names
OPEN_METRICS = {"accept": "application/openmetrics-text; version=1.0.0"}

CASES: list[Case] = [
    got("models", "/v1/models", "/models"),
    got("one model", "/v1/models/scripted", "/v1/models/gpt-4o"),
    got("an unknown model", "/v1/models/ghost/of/one"),
    got("root, health and ready", "/", "/health", "/ready"),
    got("HEAD of root, health and ready", "/", "/health", "/ready", method="HEAD"),
    got("HEAD of paths that have none", "/v1/models", "/nope", "/docs", "/metrics", method="HEAD"),
    got("health and ready of a dead engine", "/health", "/ready", prepare=kill),
    got("while the model is loading", "/", "/health", "/ready", "/v1/models", "/props", "/slots", is_loading=True),
    Case(
        api="operations",
        name="requests while the model is loading",
        calls=tuple(Call(path=path, body=body) for path, body in BODIES.items()),
        is_loading=True,
    ),
    got("props", "/props"),
    got("props of a server with other limits", "/props", options=ServingOptions(max_n=3)),
    got("slots that are idle", "/slots"),
    got("slots that are busy", "/slots", prepare=occupy),
    got("capabilities", "/v1/capabilities", "/capabilities"),
    got(
        "capabilities of a strict server and a model without a template",
        "/v1/capabilities",
        model=lambda: ScriptedModel(template=None),
        options=ServingOptions(strict_params=True),
    ),
    Case(
        api="operations",
        name="metrics",
        calls=(Call(path=CHATS, body=CHAT), Call(method="GET", path="/metrics")),
        model=says("a", "b", "c"),
        view=METRICS,
    ),
    Case(
        api="operations",
        name="metrics in the newer format",
        calls=(Call(method="GET", path="/metrics", headers=OPEN_METRICS),),
        view=METRICS,
    ),
    got("metrics that are switched off", "/metrics", options=ServingOptions(metrics=False)),
    *(
        cancelled(f"cancel {path}{', streamed' if stream else ''}", path, stream=stream, headers={})
        for path in BODIES
        for stream in (False, True)
    ),
    got("cancel what is not there", "/v1/requests/never/was/cancel", method="POST"),
    got("docs", "/docs"),
    got("openapi.json", "/openapi.json", view=paths_and_schemas),
]
