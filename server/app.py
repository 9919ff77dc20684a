"""The application: routes, error handlers and middleware around the Serving it is handed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

from server.errors import install_error_handlers
from server.limits import BodyLimit
from server.request_context import RequestContext
from server.routes import chat, completions, health, models
from server.serving import Serving


def create_app(serving: Serving) -> ASGIApp:
    """An ASGI application; its lifespan starts the load of the model and stops the engine."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        serving.start()
        yield
        await serving.stop()

    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.serving = serving
    install_error_handlers(app)
    app.include_router(health.router)
    for module in (chat, completions, models):
        app.include_router(module.router, prefix="/v1")
        app.include_router(module.router)  # clients whose base URL lacks the /v1
    limited = BodyLimit(app, serving.options.max_body_bytes)
    return RequestContext(limited, draining=lambda: serving.draining)
