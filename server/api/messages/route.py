"""POST /v1/messages and POST /v1/messages/count_tokens."""

from fastapi import APIRouter
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api.messages.body import MessagesBody, PromptBody
from server.api.messages.errors import messages_error
from server.api.messages.parameters import COUNT_PARAMETERS, MESSAGES_PARAMETERS, unread_keys
from server.api.messages.reply import MessageReply
from server.api.messages.to_chat import messages_form, prompt_form
from server.errors import WireError
from server.fields.parameters import ignored_header, strictly
from server.generate.chat_form import Json
from server.generate.event_replies import EventWriter, collected, count_tokens, plan_of, serving_of, speed_of
from server.generate.generation import admit
from server.generate.replies import new_id
from server.wire.body import parse_body
from server.wire.sse import StreamedReply, whole_reply

router = APIRouter()

PING = ServerSentEvent(event="ping", data='{"type": "ping"}', sep="\n")


@router.post("/messages")
async def create_message(http: Request) -> Response:
    serving = serving_of(http)
    options = serving.options
    parsed = await parse_body(http, MessagesBody, MESSAGES_PARAMETERS, strict=options.strict_params, nested=unread_keys)
    body = parsed.body
    model = serving.model_named(body.model)
    plan = await run_in_threadpool(lambda: plan_of(messages_form(body), model, new_id("msg_"), options))
    ignored = [*parsed.ignored, *plan.notes]
    if options.strict_params:
        strictly(ignored)
    reply = MessageReply(
        plan.id,
        model.id,
        prompt_tokens=len(plan.requests[0].prompt),
        max_tokens=body.max_tokens,
        hide_thinking=body.hides_thinking,
        speed=speed_of(serving, model),
    )
    exchange = admit(http, model, plan, ignored)
    headers = ignored_header(ignored)
    if body.stream:
        return StreamedReply(exchange, EventWriter(reply, _failure), options, headers, PING)
    return await whole_reply(http, exchange, collected(exchange, reply), headers)


@router.post("/messages/count_tokens")
async def count_message_tokens(http: Request) -> Response:
    serving = serving_of(http)
    options = serving.options
    parsed = await parse_body(http, PromptBody, COUNT_PARAMETERS, strict=options.strict_params, nested=unread_keys)
    model = serving.model_named(parsed.body.model)
    count, notes = await run_in_threadpool(lambda: count_tokens(prompt_form(parsed.body), model, options))
    return JSONResponse({"input_tokens": count}, headers=ignored_header([*parsed.ignored, *notes]))


def _failure(error: WireError) -> list[Json]:
    return [messages_error(error.status, error.message)]
