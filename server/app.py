"""The application: routes, error handlers and middleware around the Serving it is handed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

from server.api.responses.store import ResponseStore
from server.metrics import Metrics
from server.routes import ENDPOINTS, METRICS_PATH, add_routes
from server.serving import Serving
from server.wire.admission import Admission
from server.wire.endpoint import Resources
from server.wire.openapi import install_document
from server.wire.request_context import RequestContext
from server.wire.security import ApiKeys, KeyGuard
from server.wire.sites import Cors, SiteGuard, Sites
from server.wire.wire_error import install_error_handlers


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
    endpoints = [row for row in ENDPOINTS if serving.options.metrics or row.path != METRICS_PATH]
    app.state.endpoints = endpoints
    add_routes(app, endpoints)
    install_document(app, endpoints)
    resources = Resources(endpoints)
    metrics = _add_metrics(app, serving, resources) if serving.options.metrics else None
    on_status = metrics.note_status if metrics is not None else None
    return RequestContext(_guarded(app, serving), resources, lambda: serving.draining, on_status)


def _add_metrics(app: FastAPI, serving: Serving, resources: Resources) -> Metrics:
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
