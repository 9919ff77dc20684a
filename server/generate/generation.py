"""The way that all text-generating routes share: check, plan, admit, then stream or collect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from server.fields.generation import GenerationBody
from server.fields.parameters import Parameter, ignored_header, strictly
from server.generate.answer import Exchange, Finish, Plan
from server.generate.replies import ChunkWriter, Identity, Json, Shape, Speed, identity, new_id, whole_answer
from server.logs import RequestLog, access
from server.served import ServedModel, Tokenizer
from server.serving import OpenRequest, Serving
from server.settings import ServingOptions
from server.wire.body import parse_body
from server.wire.sse import StreamedReply, whole_reply

B = TypeVar("B", bound=GenerationBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[B]):
    """What makes one API of OpenAI's completions differ from the other."""

    id_prefix: str
    body: type[B]
    parameters: Mapping[str, Parameter]
    plan: Callable[[B, ServedModel, str, ServingOptions], Plan]  # blocking
    shape: Callable[[B, Plan, Tokenizer, ServingOptions], Shape]


async def generate(http: HttpRequest, api: Api[B]) -> Response:
    serving: Serving = http.app.state.serving
    options = serving.options
    parsed = await parse_body(http, api.body, api.parameters, strict=options.strict_params)
    model = serving.model_named(parsed.body.model)
    # Templates, tokenizers and grammars take their time: not on the event loop.
    plan = await run_in_threadpool(api.plan, parsed.body, model, new_id(api.id_prefix), options)
    ignored = [*parsed.ignored, *plan.notes]
    if options.strict_params:
        strictly(ignored)
    shape = api.shape(parsed.body, plan, model.tokenizer, options)
    exchange = admit(http, model, plan, ignored)
    headers = ignored_header(ignored)
    speed = Speed(model.bytes_per_token, serving.memory_bandwidth)
    if not parsed.body.stream:
        work = _collect(exchange, identity(model, plan.id), shape, speed)
        return await whole_reply(http, exchange, work, headers)
    writer = ChunkWriter(identity(model, plan.id), shape, speed, plan, include_usage=parsed.body.include_usage)
    return StreamedReply(exchange, writer, options, headers)


def admit(http: HttpRequest, model: ServedModel, plan: Plan, ignored: list[str]) -> Exchange:
    """Put the requests into the engine's queue; from here on every way out must close the exchange."""
    serving: Serving = http.app.state.serving
    log = RequestLog(
        id=plan.id,
        request_id=http.scope["octavo.request_id"],
        model=model.id,
        path=http.scope["path"],
        observer=serving.request_observer,
        choices=len(plan.requests),
        prompt_tokens=sum(map(len, plan.prompts)),
    )
    caller = http.scope.get("octavo.caller", "")
    requests = [replace(request, caller=bytes.fromhex(caller)) for request in plan.requests]
    exchange = Exchange(plan, model.service.submit(*requests), log)
    http.scope["octavo.place"].leave()
    entry = OpenRequest(id=plan.id, request_id=log.request_id, caller=caller, cancel=exchange.cancel)
    serving.open_requests.add(entry)
    exchange.on_close.append(lambda: serving.open_requests.remove(entry))
    if ignored:
        access.info("%s ignores %s", plan.id, ignored_header(ignored)["x-ignored-params"])
    return exchange


async def _collect(exchange: Exchange, answer: Identity, shape: Shape, speed: Speed) -> Json:
    finishes: dict[int, Finish] = {}
    async for update in exchange.updates():
        shape.add(update)
        if update.finish is not None:
            finishes[update.choice] = update.finish
    ordered = [finishes[choice] for choice in sorted(finishes)]
    return whole_answer(answer, shape, ordered, exchange.plan, speed)
