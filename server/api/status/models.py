"""GET /v1/models and /v1/models/{id}."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.status.json_reply import json_reply
from server.api.status.models_answers import ModelList, model_card
from server.serving import Serving

router = APIRouter()


@router.get("/models")
async def list_models(request: Request) -> Response:
    model = _serving(request).model
    return json_reply(ModelList(data=[model_card(model, name) for name in (model.id, *model.aliases)]))


@router.get("/models/{name:path}")
async def get_model(request: Request) -> Response:
    name = request.path_params["name"]
    model = _serving(request).model_named(name)
    return json_reply(model_card(model, name if name in model.aliases else model.id))


def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving
