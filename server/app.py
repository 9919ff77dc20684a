"""The application: routes, error handlers and middleware around the Serving it is handed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.errors import OctavoError
from server.endpoints import PREFIX, Endpoints
from server.errors import answer_error
from server.limits import BodyLimit
from server.metrics import Metrics
from server.queue_gate import QueueGate
from server.request_context import RequestContext
from server.responses.store import ResponseStore
from server.routes import (
    cancel,
    capabilities,
    chat,
    completions,
    docs,
    embeddings,
    health,
    messages,
    models,
    props,
    responses,
    slots,
    templates,
    tokens,
)
from server.routes import metrics as metrics_route
from server.security import ApiKeys, KeyGuard
from server.serving import Serving
from server.sites import Cors, SiteGuard, Sites

# Under /v1, and without it for clients whose base URL lacks it.
API_ROUTES = (
    *chat.ROUTES,
    *completions.ROUTES,
    *embeddings.ROUTES,
    *tokens.ROUTES,
    *templates.ROUTES,
    *models.ROUTES,
    *capabilities.ROUTES,
    *cancel.ROUTES,
    *messages.ROUTES,
    *responses.ROUTES,
)
# Where other servers have them; clients look for them there.
ROOT_ROUTES = (*health.ROUTES, *props.ROUTES, *slots.ROUTES, *docs.ROUTES)


def create_app(serving: Serving) -> ASGIApp:
    """An ASGI application; its lifespan starts the load of the model and stops the engine."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        serving.start()
        yield
        await serving.stop()

    under_prefix = [Route(PREFIX + route.path, route.endpoint, methods=route.methods) for route in API_ROUTES]
    app = Starlette(routes=[*ROOT_ROUTES, *under_prefix, *API_ROUTES], lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.serving = serving
    app.state.responses = ResponseStore()
    for kind in (OctavoError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)
    metrics = _add_metrics(app, serving) if serving.options.metrics else None
    on_status = metrics.note_status if metrics is not None else None
    return RequestContext(_guarded(app, serving), lambda: serving.draining, on_status)


def _add_metrics(app: Starlette, serving: Serving) -> Metrics:
    metrics = Metrics(Endpoints((*ROOT_ROUTES, *metrics_route.ROUTES, *API_ROUTES)).label, serving.open_requests)
    app.router.routes.extend(metrics_route.ROUTES)
    app.state.metrics = metrics
    serving.request_observer = metrics
    serving.when_ready(metrics.watch)
    return metrics


def _guarded(app: ASGIApp, serving: Serving) -> ASGIApp:
    """What a request passes before it reaches a route; errors on the way carry CORS headers too."""
    options = serving.options
    keys = ApiKeys(options.api_keys)
    sites = Sites(options.host, options.allowed_hosts, options.cors_origins)
    keyed = KeyGuard(QueueGate(BodyLimit(app, options.max_body_bytes), serving), keys)
    shared = Cors(keyed, sites)
    return shared if keys else SiteGuard(shared, sites)
