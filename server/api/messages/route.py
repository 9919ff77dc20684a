"""POST /v1/messages and POST /v1/messages/count_tokens."""

from fastapi import APIRouter
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api.messages.body import MessagesBody, PromptBody
from server.api.messages.parameters import COUNT_PARAMETERS, MESSAGES_PARAMETERS, unread_keys
from server.api.messages.reply import MessageReply
from server.api.messages.to_chat import messages_form, prompt_form
from server.fields.parameters import ignored_header
from server.generate.generation import Api, generate, serving_of
from server.wire.body import parse_body

router = APIRouter()

MESSAGES: Api[MessagesBody] = Api(
    id_prefix="msg_",
    plan=lambda body, context: messages_form(body).plan(context),
    reply=MessageReply,
    ping=ServerSentEvent(event="ping", data='{"type": "ping"}', sep="\n"),
)


@router.post("/messages")
async def create_message(http: Request) -> Response:
    strict = serving_of(http).options.strict_params
    parsed = await parse_body(http, MessagesBody, MESSAGES_PARAMETERS, strict=strict, nested=unread_keys)
    return await generate(http, parsed.body, parsed.ignored, MESSAGES)


@router.post("/messages/count_tokens")
async def count_message_tokens(http: Request) -> Response:
    serving = serving_of(http)
    options = serving.options
    parsed = await parse_body(http, PromptBody, COUNT_PARAMETERS, strict=options.strict_params, nested=unread_keys)
    model = serving.model_named(parsed.body.model)
    count, notes = await run_in_threadpool(lambda: prompt_form(parsed.body).count_tokens(model, options))
    return JSONResponse({"input_tokens": count}, headers=ignored_header([*parsed.ignored, *notes]))
