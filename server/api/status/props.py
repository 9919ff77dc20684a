"""GET /props: facts of the model, the defaults of a request, and the limits."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine.version import VERSION
from server.api.status.answers import GenerationDefaults, GenerationSettings, Limits, Props
from server.api.status.json_reply import json_reply
from server.fields.sampling import props_values
from server.served import ServedModel
from server.serving import Serving
from server.settings import ServingOptions
from server.wire.limits import MAX_DEPTH

router = APIRouter()


@router.get("/props")
async def read_props(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    model = serving.model
    props = Props(
        default_generation_settings=GenerationSettings(n_ctx=model.context_length, params=_defaults(model)),
        total_slots=model.lanes,
        model_alias=model.id,
        aliases=list(model.aliases),
        chat_template=model.template.source if model.template is not None else None,
        build_info=f"octavo {VERSION}",
        fingerprint=model.fingerprint,
        architecture=model.architecture,
        weight_types=model.weight_types,
        vocab_size=model.vocab_size,
        threads=model.threads,
        isa=model.isa,
        limits=limits(model, serving.options),
    )
    return json_reply(props)


def limits(model: ServedModel, options: ServingOptions) -> Limits:
    return Limits(
        context_length=model.context_length,
        max_n=options.max_n,
        max_body_bytes=options.max_body_bytes,
        max_json_depth=MAX_DEPTH,
    )


def _defaults(model: ServedModel) -> GenerationDefaults:
    return GenerationDefaults.model_validate(props_values(model.sampling))
