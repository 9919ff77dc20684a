"""POST /v1/messages and POST /v1/messages/count_tokens."""

from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api.messages.body import MessagesBody, PromptBody
from server.api.messages.reply import MessageReply
from server.api.messages.to_chat import messages_form, prompt_form
from server.fields.parameters import ignored_header
from server.generate.generation import Api, generate, serving_of
from server.wire.body import ignored_of

MESSAGES: Api[MessagesBody] = Api(
    id_prefix="msg_",
    plan=lambda body, context: messages_form(body).plan(context),
    reply=MessageReply,
    ping=ServerSentEvent(event="ping", data='{"type": "ping"}', sep="\n"),
)


async def create_message(http: Request, body: MessagesBody) -> Response:
    return await generate(http, body, MESSAGES)


async def count_message_tokens(http: Request, body: PromptBody) -> Response:
    serving = serving_of(http)
    options = serving.options
    model = serving.model_named(body.model)
    count, notes = await run_in_threadpool(lambda: prompt_form(body).count_tokens(model, options))
    return JSONResponse({"input_tokens": count}, headers=ignored_header([*ignored_of(http), *notes]))
