"""POST /v1/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.completion_reply import CompletionShape
from server.convert import completion_plan
from server.parameters import COMPLETION_PARAMETERS
from server.protocol.completions import CompletionBody
from server.routes.generation import Api, generate

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
