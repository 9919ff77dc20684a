"""The application that is fuzzed: in this process, behind it an engine that plays an answer of every kind."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
from starlette.types import ASGIApp

from engine.api.request import Request
from server.app import create_app
from server.settings import ServingOptions
from tests.server.harness import ready_serving
from tests.server.scripted.engine import Mark, ScriptedModel, ScriptedService, Step

HANG_SECONDS = 30  # a scripted answer takes some milliseconds
SCRIPTS: tuple[Sequence[Step], ...] = (
    ("Hello", " world"),
    (Mark("<think>"), "Hm", ".", Mark("</think>"), "\n\n", "Grüße 🙂", "\n"),
    (Mark("<tool_call>"), '{"name": "tool_0", ', '"arguments": {"a": 1}}', Mark("</tool_call>")),
    (),
)


def played(request: Request) -> Sequence[Step]:
    """One of the scripts, always the same for a prompt."""
    return SCRIPTS[sum(request.prompt) % len(SCRIPTS)]


class AppUnderTest:
    """Answers one request at a time, on an event loop of its own."""

    def __init__(self, options: ServingOptions) -> None:
        self.loop = asyncio.new_event_loop()
        self.model = ScriptedModel(service=ScriptedService(played))
        self.app: ASGIApp = create_app(self.loop.run_until_complete(ready_serving(self.model, options)))
        transport = httpx.ASGITransport(app=self.app)  # an exception that leaves the application is raised here
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self.kept = self.keep_response()

    def request(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        """The whole answer; raises TimeoutError if there is none."""
        sending = self._client.request(method, url, **arguments)
        return self.loop.run_until_complete(asyncio.wait_for(sending, HANG_SECONDS))

    def keep_response(self) -> str:
        """The id of a new response that can be gone back to."""
        body = {"model": self.model.id, "input": "Hi"}
        return str(self.request("POST", "/v1/responses", json=body).json()["id"])

    def close(self) -> None:
        self.loop.run_until_complete(self._client.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
