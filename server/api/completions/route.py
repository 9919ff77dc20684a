"""POST /v1/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.completions.body import CompletionBody
from server.api.completions.reply import CompletionReply
from server.fields.parameters import COMPLETION_PARAMETERS
from server.generate.generation import Api, generate, serving_of
from server.generate.plan import completion_plan
from server.wire.body import parse_body

router = APIRouter()

COMPLETION = Api(id_prefix="cmpl-", plan=completion_plan, reply=CompletionReply)


@router.post("/completions")
async def create_completion(http: Request) -> Response:
    parsed = await parse_body(
        http, CompletionBody, COMPLETION_PARAMETERS, strict=serving_of(http).options.strict_params
    )
    return await generate(http, parsed.body, parsed.ignored, COMPLETION)
