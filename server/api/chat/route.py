"""POST /v1/chat/completions."""

from starlette.requests import Request
from starlette.responses import Response

from server.api.chat.body import ChatBody
from server.api.chat.reply import ChatReply
from server.generate.generation import Api, generate
from server.generate.plan import chat_plan

CHAT = Api(id_prefix="chatcmpl-", plan=chat_plan, reply=ChatReply)


async def create_chat_completion(http: Request, body: ChatBody) -> Response:
    return await generate(http, body, CHAT)
