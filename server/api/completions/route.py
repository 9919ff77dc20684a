"""POST /v1/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.completions.body import CompletionBody
from server.api.completions.reply import CompletionShape
from server.fields.parameters import COMPLETION_PARAMETERS
from server.generate.generation import Api, generate
from server.generate.plan import completion_plan

router = APIRouter()

COMPLETION = Api(
    id_prefix="cmpl-",
    body=CompletionBody,
    parameters=COMPLETION_PARAMETERS,
    plan=completion_plan,
    shape=lambda body, plan, tokenizer, _: CompletionShape(body, plan, tokenizer),
)


@router.post("/completions")
async def create_completion(request: Request) -> Response:
    return await generate(request, COMPLETION)
