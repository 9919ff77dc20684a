"""POST /v1/responses, and what can be asked of a response that is kept."""

from dataclasses import replace
from functools import cache, partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from engine.errors import RequestError
from server.api.responses.body import ITEMS, CountBody, ResponsesBody
from server.api.responses.reply import ResponseReply, TracingParser
from server.api.responses.store import ResponseStore, StoredResponse, kept_items, page_of
from server.api.responses.to_chat import input_form, response_form
from server.errors import UnknownResponseError, clip
from server.fields.parameters import ignored_header
from server.generate.answer import Context, Json, Plan
from server.generate.generation import Api, generate, serving_of
from server.wire.body import ignored_of
from server.wire.json_text import answer_of, json_answer


async def create_response(http: Request, body: ResponsesBody) -> Response:
    serving = serving_of(http)
    serving.model_named(body.model)  # raises its errors before those of an earlier response
    previous = _previous(http, body.previous_response_id)
    earlier = cache(lambda: _items(previous))  # read in the plan's thread, and used again when the response is kept

    def plan(body: ResponsesBody, context: Context) -> Plan:
        plan = response_form(body, ITEMS.validate_python(earlier())).plan(context)
        return replace(plan, new_parser=partial(_tracing_parser, plan)) if body.wants_logprobs else plan

    def keep(response: Json) -> None:
        if body.store:
            _store(http).put(_caller(http), response, [*earlier(), *kept_items(body.input)])

    api = Api(id_prefix="resp_", plan=plan, reply=partial(ResponseReply, keep=keep))
    return await generate(http, body, api)


async def count_input_tokens(http: Request, body: CountBody) -> Response:
    serving = serving_of(http)
    options = serving.options
    model = serving.model if body.model is None else serving.model_named(body.model)
    previous = _previous(http, body.previous_response_id)

    def count() -> tuple[int, list[str]]:
        return input_form(body, model.id, ITEMS.validate_python(_items(previous))).count_tokens(model, options)

    tokens, notes = await run_in_threadpool(count)
    answer = {"object": "response.input_tokens", "input_tokens": tokens}
    return json_answer(answer, headers=ignored_header([*ignored_of(http), *notes]))


async def read_response(http: Request) -> Response:
    if http.query_params.get("stream", "false") != "false":
        raise RequestError("stream: a response that is kept is complete, and is not streamed again.", param="stream")
    return answer_of(_kept(http, _named(http)).response)


async def delete_response(http: Request) -> Response:
    response_id = _named(http)
    _store(http).delete(_caller(http), response_id)
    return json_answer({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(http: Request) -> Response:
    _kept(http, _named(http))
    raise RequestError(
        "Only background responses can be cancelled here, and this server makes none; end a running answer by"
        " closing its connection, or with POST /v1/requests/{id}/cancel.",
        param="response_id",
    )


async def list_input_items(http: Request) -> Response:
    return json_answer(page_of(_kept(http, _named(http)).items, http.query_params))


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
    """The id in the path."""
    return str(http.path_params["response_id"])


def _kept(http: Request, name: str) -> StoredResponse:
    return _store(http).get(_caller(http), name)


def _store(http: Request) -> ResponseStore:
    store: ResponseStore = http.app.state.responses
    return store


def _caller(http: Request) -> str:
    return str(http.scope.get("octavo.caller", ""))
