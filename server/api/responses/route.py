"""POST /v1/responses, and what can be asked of a response that is kept."""

from dataclasses import replace
from functools import partial

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.errors import RequestError
from server.api.responses.body import ITEMS, CountBody, ResponsesBody
from server.api.responses.logprobs import TracingParser, text_logprobs
from server.api.responses.pages import page_of
from server.api.responses.parameters import COUNT_PARAMETERS, RESPONSES_PARAMETERS, unread_keys
from server.api.responses.record import kept_items, response_head
from server.api.responses.reply import ResponseReply
from server.api.responses.store import ResponseStore, StoredResponse
from server.api.responses.to_chat import input_form, response_form
from server.errors import UnknownResponseError, clip
from server.fields.parameters import ignored_header, strictly
from server.generate.answer import Plan
from server.generate.chat_form import Json
from server.generate.event_replies import EventWriter, collected, count_tokens, plan_of, serving_of, speed_of
from server.generate.generation import admit
from server.generate.replies import new_id
from server.served import ServedModel
from server.settings import ServingOptions
from server.wire.body import parse_body
from server.wire.sse import StreamedReply, whole_reply

router = APIRouter()


@router.post("/responses")
async def create_response(http: Request) -> Response:
    serving = serving_of(http)
    options = serving.options
    parsed = await parse_body(
        http, ResponsesBody, RESPONSES_PARAMETERS, strict=options.strict_params, nested=unread_keys
    )
    body = parsed.body
    model = serving.model_named(body.model)
    previous = _previous(http, body.previous_response_id)
    plan, earlier = await run_in_threadpool(_plan, body, previous, model, options)
    ignored = [*parsed.ignored, *plan.notes]
    if options.strict_params:
        strictly(ignored)
    reply = ResponseReply(
        response_head(body, plan.id, model),
        lambda tokens: text_logprobs(tokens, model.tokenizer),
        speed_of(serving, model),
    )

    def keep(response: Json) -> None:
        if body.store:
            _store(http).put(_caller(http), response, [*earlier, *kept_items(body.input)])

    exchange = admit(http, model, plan, ignored)
    headers = ignored_header(ignored)
    if body.stream:
        writer = EventWriter(reply, lambda error: reply.fail(error.message), keep)
        return StreamedReply(exchange, writer, options, headers)
    return await whole_reply(http, exchange, collected(exchange, reply, keep), headers)


@router.post("/responses/input_tokens")
async def count_input_tokens(http: Request) -> Response:
    serving = serving_of(http)
    options = serving.options
    parsed = await parse_body(http, CountBody, COUNT_PARAMETERS, strict=options.strict_params, nested=unread_keys)
    body = parsed.body
    model = serving.model if body.model is None else serving.model_named(body.model)
    previous = _previous(http, body.previous_response_id)

    def count() -> tuple[int, list[str]]:
        return count_tokens(input_form(body, model.id, ITEMS.validate_python(_items(previous))), model, options)

    tokens, notes = await run_in_threadpool(count)
    answer = {"object": "response.input_tokens", "input_tokens": tokens}
    return JSONResponse(answer, headers=ignored_header([*parsed.ignored, *notes]))


@router.get("/responses/{response_id}")
async def read_response(http: Request) -> Response:
    if http.query_params.get("stream", "false") != "false":
        raise RequestError("stream: a response that is kept is complete, and is not streamed again.", param="stream")
    return Response(_kept(http, _named(http)).response, media_type="application/json")


@router.delete("/responses/{response_id}")
async def delete_response(http: Request) -> Response:
    response_id = _named(http)
    _store(http).delete(_caller(http), response_id)
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


@router.post("/responses/{response_id}/cancel")
async def cancel_response(http: Request) -> Response:
    _kept(http, _named(http))
    raise RequestError(
        "Only background responses can be cancelled here, and this server makes none; end a running answer by"
        " closing its connection, or with POST /v1/requests/{id}/cancel.",
        param="response_id",
    )


@router.get("/responses/{response_id}/input_items")
async def list_input_items(http: Request) -> Response:
    return JSONResponse(page_of(_kept(http, _named(http)).items, http.query_params))


def _plan(
    body: ResponsesBody, previous: StoredResponse | None, model: ServedModel, options: ServingOptions
) -> tuple[Plan, list[Json]]:
    """The plan, and the items that came before those of the body. Blocking."""
    earlier = _items(previous)
    plan = plan_of(response_form(body, ITEMS.validate_python(earlier)), model, new_id("resp_"), options)
    if body.wants_logprobs:
        plan = replace(plan, new_parser=partial(_tracing_parser, plan))
    return plan, earlier


def _tracing_parser(plan: Plan) -> TracingParser:
    return TracingParser(plan.new_parser())


def _items(previous: StoredResponse | None) -> list[Json]:
    return [] if previous is None else previous.conversation


def _previous(http: Request, name: str | None) -> StoredResponse | None:
    if name is None:
        return None
    try:
        return _kept(http, name)
    except UnknownResponseError:
        param = "previous_response_id"
        raise RequestError(
            f"{param}: no response '{clip(name)}' of yours is kept here; send its items as input instead.",
            param=param,
            code="previous_response_not_found",
        ) from None


def _named(http: Request) -> str:
    """The id in the path; a parameter of the function would have FastAPI import all of Pydantic's first version."""
    return str(http.path_params["response_id"])


def _kept(http: Request, name: str) -> StoredResponse:
    return _store(http).get(_caller(http), name)


def _store(http: Request) -> ResponseStore:
    store: ResponseStore = http.app.state.responses
    return store


def _caller(http: Request) -> str:
    return str(http.scope.get("octavo.caller", ""))
