"""The application: routes, error handlers and middleware around the Serving it is handed."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from server.api.responses.store import ResponseStore
from server.metrics import Metrics
from server.routes import ENDPOINTS, METRICS_PATH, add_routes
from server.serving import Serving
from server.wire.admission import Admission
from server.wire.endpoint import Endpoint, Resources
from server.wire.request_context import RequestContext
from server.wire.security import ApiKeys, KeyGuard
from server.wire.sites import Cors, SiteGuard, Sites
from server.wire.wire_error import install_error_handlers


def create_app(serving: Serving) -> ASGIApp:
    """An ASGI application; its lifespan starts the load of the model and stops the engine."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        serving.start()
        yield
        await serving.stop()

    app = Starlette(lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.serving = serving
    app.state.responses = ResponseStore()
    install_error_handlers(app)
    endpoints = [row for row in ENDPOINTS if serving.options.metrics or row.path != METRICS_PATH]
    app.state.endpoints = endpoints
    add_routes(app, endpoints)
    app.state.document = _document(endpoints)
    resources = Resources(endpoints)
    metrics = _add_metrics(app, serving, resources) if serving.options.metrics else None
    on_status = metrics.note_status if metrics is not None else None
    return RequestContext(_guarded(app, serving), resources, lambda: serving.draining, on_status)


def _document(endpoints: Sequence[Endpoint]) -> Callable[[], dict[str, Any]]:
    """What makes the OpenAPI document at its first use."""

    @cache
    def document() -> dict[str, Any]:
        # Imported late, since no other answer needs FastAPI, and /health would wait for it.
        from server.wire.openapi import openapi_document

        return openapi_document(endpoints)

    return document


def _add_metrics(app: Starlette, serving: Serving, resources: Resources) -> Metrics:
    metrics = Metrics(resources.label, serving.open_requests)
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
