"""POST /v1/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.convert import completion_request
from server.parameters import COMPLETION_PARAMETERS
from server.protocol.completions import CompletionBody
from server.replies import COMPLETION
from server.routes.generation import generate

router = APIRouter()


@router.post("/completions")
async def create_completion(request: Request) -> Response:
    return await generate(request, CompletionBody, COMPLETION_PARAMETERS, completion_request, COMPLETION)
