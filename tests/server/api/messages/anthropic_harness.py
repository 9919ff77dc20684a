"""The Anthropic SDK on an application under test, without a socket and without retries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from anthropic import AsyncAnthropic

from server.app import create_app
from server.settings import ServingOptions
from tests.server.harness import ready_serving
from tests.server.scripted.engine import ScriptedModel

ASK: dict[str, Any] = {"model": "scripted", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]}


@asynccontextmanager
async def anthropic_client(
    model: ScriptedModel, options: ServingOptions | None = None
) -> AsyncIterator[AsyncAnthropic]:
    transport = httpx2.ASGITransport(app=create_app(await ready_serving(model, options)))
    async with AsyncAnthropic(
        base_url="http://127.0.0.1",
        api_key="unused",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport),
    ) as client:
        yield client
