"""The application: routes, error handlers and middleware around the Serving it is handed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

from server.api.chat import route as chat
from server.api.completions import route as completions
from server.api.docs import route as docs
from server.api.embeddings import route as embeddings
from server.api.messages import route as messages
from server.api.responses import route as responses
from server.api.responses.store import ResponseStore
from server.api.status import cancel, capabilities, health, models, props, slots
from server.api.status import metrics as metrics_route
from server.api.tokens import route as tokens
from server.api.tokens import templates
from server.errors import install_error_handlers
from server.metrics import Metrics
from server.serving import Serving
from server.wire.admission import Admission
from server.wire.endpoints import Endpoints
from server.wire.request_context import RequestContext
from server.wire.security import ApiKeys, KeyGuard
from server.wire.sites import Cors, SiteGuard, Sites

# Under /v1, and without it for clients whose base URL lacks it.
API_ROUTERS = (
    chat.router,
    completions.router,
    embeddings.router,
    tokens.router,
    templates.router,
    models.router,
    capabilities.router,
    cancel.router,
    messages.router,
    responses.router,
)
# Where other servers have them; clients look for them there.
ROOT_ROUTERS = (health.router, props.router, slots.router, docs.router)


def create_app(serving: Serving) -> ASGIApp:
    """An ASGI application; its lifespan starts the load of the model and stops the engine."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        serving.start()
        yield
        await serving.stop()

    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.serving = serving
    app.state.responses = ResponseStore()
    install_error_handlers(app)
    for router in ROOT_ROUTERS:
        app.include_router(router)
    for router in API_ROUTERS:
        app.include_router(router, prefix="/v1")
        app.include_router(router, include_in_schema=False)
    metrics = _add_metrics(app, serving) if serving.options.metrics else None
    on_status = metrics.note_status if metrics is not None else None
    return RequestContext(_guarded(app, serving), lambda: serving.draining, on_status)


def _add_metrics(app: FastAPI, serving: Serving) -> Metrics:
    metrics = Metrics(Endpoints((*ROOT_ROUTERS, metrics_route.router, *API_ROUTERS)).label, serving.open_requests)
    app.include_router(metrics_route.router)
    app.state.metrics = metrics
    serving.request_observer = metrics
    serving.when_ready(metrics.watch)
    return metrics


def _guarded(app: ASGIApp, serving: Serving) -> ASGIApp:
    """What a request passes before it reaches a route; errors on the way carry CORS headers too."""
    options = serving.options
    keys = ApiKeys(options.api_keys)
    sites = Sites(options.host, options.allowed_hosts, options.cors_origins)
    keyed = KeyGuard(Admission(app, serving), keys)
    shared = Cors(keyed, sites)
    return shared if keys else SiteGuard(shared, sites)
