"""GET /metrics: figures for Prometheus."""

from fastapi import APIRouter
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from server.metrics import Metrics

router = APIRouter()


@router.get("/metrics")
async def read_metrics(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(metrics.registry), headers={"Content-Type": content_type})
