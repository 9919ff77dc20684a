"""Ways to reach an application under test: in-process, or by a real socket of a server in another thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
from openai import AsyncOpenAI

from server.app import create_app
from server.routes import ENDPOINTS
from server.served import ServedModel
from server.serving import Serving
from server.settings import ServingOptions
from server.wire.lifecycle import HttpServer, bind
from server.wire.openapi import openapi_document as document_of
from tests.server.scripted.engine import ScriptedModel

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


async def ready_serving(model: ScriptedModel, options: ServingOptions | None = None) -> Serving:
    serving = Serving(lambda _: model, options)
    await serving.wait_loaded()
    return serving


@asynccontextmanager
async def http_client(
    model: ScriptedModel, options: ServingOptions | None = None, *, raise_app_exceptions: bool = True
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the application, without a socket."""
    app = create_app(await ready_serving(model, options))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=raise_app_exceptions)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def openai_client(model: ScriptedModel, options: ServingOptions | None = None) -> AsyncIterator[AsyncOpenAI]:
    """The OpenAI SDK on the application, without a socket and without retries."""
    transport = httpx2.ASGITransport(app=create_app(await ready_serving(model, options)))
    async with AsyncOpenAI(
        base_url="http://localhost/v1",
        api_key="unused",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport),
    ) as client:
        yield client


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of all endpoints."""
    return document_of(ENDPOINTS)


@dataclass(frozen=True)
class LiveServer:
    """A server with a socket, in a thread of its own."""

    url: str
    port: int
    http: HttpServer
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    model: Any  # scripted or real

    def request_exit(self) -> None:
        self.loop.call_soon_threadsafe(self.http.request_exit)

    def stop(self) -> None:
        if self.thread.is_alive():
            self.request_exit()
            self.thread.join(timeout=20)
        assert not self.thread.is_alive()


@contextmanager
def live_server(model: ServedModel, options: ServingOptions | None = None) -> Iterator[LiveServer]:
    def run() -> None:
        asyncio.run(serve())

    async def serve() -> None:
        serving = Serving(lambda _: model, options or ServingOptions(drain_seconds=0))
        http = HttpServer(create_app(serving), serving)
        task = asyncio.create_task(http.serve(sockets=[listener]))
        await serving.wait_loaded()
        servers.append(LiveServer(f"http://127.0.0.1:{port}", port, http, asyncio.get_running_loop(), thread, model))
        is_up.set()
        await task

    servers: list[LiveServer] = []
    is_up = threading.Event()
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=run)
    thread.start()
    assert is_up.wait(20)
    try:
        yield servers[0]
    finally:
        servers[0].stop()


@asynccontextmanager
async def loading_client(options: ServingOptions | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of an application whose model is never loaded."""
    app = create_app(Serving(lambda _: ScriptedModel(), options))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        yield client
