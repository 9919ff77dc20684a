"""POST /tokenize and /detokenize."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.tokens.body import DetokenizeBody, TokenizeBody
from server.api.tokens.templates import of_chat, served_model
from server.api.tokens.tokens import DETOKENIZE_PARAMETERS, TOKENIZE_PARAMETERS, detokenized, tokenized
from server.fields.parameters import ignored_header
from server.serving import Serving
from server.wire.body import parse_body

router = APIRouter()


@router.post("/tokenize")
async def tokenize(http: Request) -> Response:
    return await of_chat(http, TokenizeBody, TOKENIZE_PARAMETERS, tokenized)


@router.post("/detokenize")
async def detokenize(http: Request) -> Response:
    serving: Serving = http.app.state.serving
    parsed = await parse_body(http, DetokenizeBody, DETOKENIZE_PARAMETERS, strict=serving.options.strict_params)
    content = await run_in_threadpool(detokenized, parsed.body, served_model(serving, parsed.body.model))
    return Response(content, headers=ignored_header(parsed.ignored), media_type="application/json")
