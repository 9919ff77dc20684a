"""POST /apply-template, /v1/chat/completions/render and .../input_tokens: what becomes of a chat before its answer."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.tokens.body import TemplateBody
from server.api.tokens.tokens import counted, rendered
from server.fields.parameters import CHAT_PARAMETERS, Parameter, ignored_header, strictly
from server.served import ServedModel
from server.serving import Serving
from server.wire.body import parse_body

router = APIRouter()

C = TypeVar("C", bound=TemplateBody)


@router.post("/apply-template")
@router.post("/chat/completions/render")
async def render(http: Request) -> Response:
    return await of_chat(http, TemplateBody, CHAT_PARAMETERS, rendered)


@router.post("/chat/completions/input_tokens")
async def count_input_tokens(http: Request) -> Response:
    return await of_chat(http, TemplateBody, CHAT_PARAMETERS, counted)


async def of_chat(
    http: Request,
    body_type: type[C],
    table: Mapping[str, Parameter],
    answer: Callable[[C, ServedModel, Mapping[str, object]], tuple[bytes, list[str]]],
) -> Response:
    """Check a chat, and let `answer` make the reply of it in a thread; it returns notes of what had no effect too."""
    serving: Serving = http.app.state.serving
    options = serving.options
    parsed = await parse_body(http, body_type, table, strict=options.strict_params)
    model = served_model(serving, parsed.body.model)
    content, notes = await run_in_threadpool(answer, parsed.body, model, options.default_template_kwargs)
    if options.strict_params:
        strictly(notes)
    return Response(content, headers=ignored_header([*parsed.ignored, *notes]), media_type="application/json")


def served_model(serving: Serving, name: str) -> ServedModel:
    """Other servers' clients name no model here."""
    return serving.model_named(name) if name else serving.model
