"""GET /v1/models and /v1/models/{id}."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.described import described
from server.protocol.models import ModelList, model_card
from server.serving import Serving


async def list_models(request: Request) -> Response:
    model = _serving(request).model
    return described(ModelList(data=[model_card(model, name) for name in (model.id, *model.aliases)]))


async def get_model(request: Request) -> Response:
    name = request.path_params["name"]
    model = _serving(request).model_named(name)
    return described(model_card(model, name if name in model.aliases else model.id))


def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


ROUTES = (
    Route("/models", list_models),
    Route("/models/{name:path}", get_model),
)
