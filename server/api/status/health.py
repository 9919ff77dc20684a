"""GET /health (alive), /ready (the model answers) and / (something is here)."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.serving import Phase, Serving

router = APIRouter()

GET_AND_HEAD = ["GET", "HEAD"]


@router.api_route("/", methods=GET_AND_HEAD)
async def root() -> Response:
    return JSONResponse({"name": "octavo", "api": "/v1"})


@router.api_route("/health", methods=GET_AND_HEAD)
async def health(request: Request) -> Response:
    """200 from the first moment; 503 once draining, so that load balancers turn away first, or the engine is dead."""
    serving: Serving = request.app.state.serving
    if serving.draining:
        return JSONResponse({"status": Phase.DRAINING}, status_code=503)
    if not serving.alive:
        return JSONResponse({"status": "dead"}, status_code=503)
    return JSONResponse({"status": "ok"})


@router.api_route("/ready", methods=GET_AND_HEAD)
async def ready(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    is_ready = serving.phase is Phase.READY and serving.alive
    body = {"status": serving.phase, "progress": round(serving.progress, 4)}
    return JSONResponse(body, status_code=200 if is_ready else 503)
