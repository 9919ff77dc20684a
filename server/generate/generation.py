"""The way that all APIs share: plan, admit, then stream or collect. What differs is a row of data for each API."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from engine.api.prompt import Prompt
from server.fields.parameters import ignored_header, strictly
from server.generate.answer import Context, Plan, Speed
from server.generate.answer_stream import AnswerStream
from server.generate.reply import Reply
from server.generate.stream import StreamedReply, whole_reply
from server.logs import RequestLog, access
from server.serving import OpenRequest, Serving
from server.wire.body import ignored_of


class GeneratingBody(Protocol):
    """What every body says that asks for text."""

    model: str
    stream: bool


B = TypeVar("B", bound=GeneratingBody)
R = TypeVar("R", bound=OpenRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[B]):
    """What makes one API differ from the others."""

    id_prefix: str  # of answers
    plan: Callable[[B, Context], Plan]  # blocking; raises RequestError for what cannot be done
    reply: Callable[[B, Plan, Context], Reply]


async def generate(http: HttpRequest, body: B, api: Api[B]) -> Response:
    """Answer a checked body."""
    context = context_of(http, body.model, api.id_prefix)
    # Templates, tokenizers and grammars take their time: not on the event loop.
    plan = await run_in_threadpool(api.plan, body, context)
    unused = [*ignored_of(http), *plan.notes]
    if context.options.strict_params:
        strictly(unused)
    reply = api.reply(body, plan, context)

    def submit(log: RequestLog) -> AnswerStream:
        return AnswerStream(plan, context.model.service.submit(*plan.requests), log, context.caller)

    answer = admit(http, context, submit, prompts=plan.prompts, choices=len(plan.requests), ignored=unused)
    headers = ignored_header(unused)
    if body.stream:
        return StreamedReply(answer, reply, context.options, headers)
    return await whole_reply(http, answer, reply, headers)


def serving_of(http: HttpRequest) -> Serving:
    serving: Serving = http.app.state.serving
    return serving


def context_of(http: HttpRequest, model_name: str, id_prefix: str) -> Context:
    """Raises UnknownModelError, and EngineNotReadyError where no model serves."""
    serving = serving_of(http)
    model = serving.model_named(model_name)
    return Context(
        id=id_prefix + secrets.token_hex(16),
        model=model,
        options=serving.options,
        speed=Speed(model.bytes_per_token, serving.memory_bandwidth),
        caller=http.scope.get("octavo.caller", ""),
    )


def admit(
    http: HttpRequest,
    context: Context,
    submit: Callable[[RequestLog], R],
    *,
    prompts: Sequence[Prompt],
    choices: int,
    ignored: list[str],
) -> R:
    """Put a request into the engine's queue, by `submit`; from here on every way out must close what is returned."""
    serving = serving_of(http)
    log = RequestLog(
        id=context.id,
        request_id=http.scope["octavo.request_id"],
        model=context.model.id,
        path=http.scope["path"],
        observer=serving.request_observer,
        choices=choices,
        prompt_tokens=sum(map(len, prompts)),
    )
    request = submit(log)
    http.scope["octavo.place"].leave()
    serving.open_requests.add(request)
    request.on_close.append(lambda: serving.open_requests.remove(request))
    if ignored:
        access.info("%s ignores %s", log.id, ignored_header(ignored)["x-ignored-params"])
    return request
