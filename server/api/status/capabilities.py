"""GET /v1/capabilities: what becomes of each parameter with the loaded model."""

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.status.answers import Capabilities, ModelAbilities, ParameterLists
from server.api.status.json_reply import json_reply
from server.api.status.props import limits
from server.fields.parameters import Handling, Parameter
from server.served import ServedModel
from server.serving import Serving

router = APIRouter()


@router.get("/capabilities")
async def read_capabilities(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    model = serving.model
    capabilities = Capabilities(
        model=model.id,
        abilities=_abilities(model),
        limits=limits(model, serving.options),
        unknown_parameters="refused" if serving.options.strict_params else "ignored",
        parameters=await run_in_threadpool(_parameters),
    )
    return json_reply(capabilities)


def _parameters() -> dict[str, ParameterLists]:
    # Imported late, as in docs.py.
    from server.api.docs.operations import OPERATIONS

    return {one.path: _lists(one.parameters) for one in OPERATIONS if one.parameters is not None}


def _abilities(model: ServedModel) -> ModelAbilities:
    tools = model.format.tools
    return ModelAbilities(
        chat=model.template is not None,
        tools=tools is not None,
        tool_format=tools.name if tools is not None else None,
        thinking=model.format.thinking is not None,
        structured_output=True,
    )


def _lists(table: Mapping[str, Parameter]) -> ParameterLists:
    def names(handling: Handling) -> list[str]:
        return sorted(row.name for row in table.values() if row.handling is handling)

    return ParameterLists(
        enforced=names(Handling.HONOURED), ignored=names(Handling.IGNORED), refused=names(Handling.REFUSED)
    )
