"""The way that all text-generating routes share: check, convert, admit, then stream or collect."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from engine.request import Request
from server.body import parse_body
from server.logs import RequestLog, access
from server.parameters import Parameter, ignored_header
from server.protocol.common import GenerationBody
from server.replies import Identity, Shape, new_id
from server.served import ServedModel
from server.serving import Serving
from server.stream import Exchange, StreamedReply, whole_reply

B = TypeVar("B", bound=GenerationBody)


async def generate(
    http: HttpRequest,
    body_type: type[B],
    table: Mapping[str, Parameter],
    convert: Callable[[B, ServedModel, str], Request],
    shape: Shape,
) -> Response:
    serving: Serving = http.app.state.serving
    parsed = await parse_body(http, body_type, table, strict=serving.options.strict_params)
    model = serving.model_named(parsed.body.model)
    # Templates and tokenizers take their time: not on the event loop.
    request = await run_in_threadpool(convert, parsed.body, model, new_id(shape))
    exchange = _admit(http, model, request, shape, parsed.ignored)
    if parsed.body.stream:
        return StreamedReply(exchange, serving.options, include_usage=parsed.body.include_usage)
    return await whole_reply(http, exchange)


def _admit(http: HttpRequest, model: ServedModel, request: Request, shape: Shape, ignored: list[str]) -> Exchange:
    """Put the request into the engine's queue; from here on every way out must close the exchange."""
    headers = ignored_header(ignored)
    log = RequestLog(
        id=request.id,
        request_id=http.scope["octavo.request_id"],
        model=model.id,
        prompt_tokens=len(request.prompt),
    )
    if ignored:
        access.info("%s ignores %s", request.id, headers["x-ignored-params"])
    return Exchange(
        events=model.service.submit(request),
        identity=Identity(id=request.id, model=model.id, fingerprint=model.fingerprint),
        shape=shape,
        log=log,
        headers=headers,
    )
