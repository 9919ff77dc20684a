"""GET /metrics: figures for Prometheus."""

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.metrics import Metrics


async def read_metrics(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(metrics.registry), headers={"Content-Type": content_type})


ROUTES = (Route("/metrics", read_metrics),)
