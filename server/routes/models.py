"""GET /v1/models and /v1/models/{id}."""

from fastapi import APIRouter
from starlette.requests import Request

from server.protocol.models import ModelCard, ModelList, model_card
from server.serving import Serving

router = APIRouter()


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    model = _serving(request).model
    return ModelList(data=[model_card(model, name) for name in (model.id, *model.aliases)])


@router.get("/models/{name:path}")
async def get_model(request: Request, name: str) -> ModelCard:
    model = _serving(request).model_named(name)
    return model_card(model, name if name in model.aliases else model.id)


def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving
