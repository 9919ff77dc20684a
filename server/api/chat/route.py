"""POST /v1/chat/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.chat.body import ChatBody
from server.api.chat.reply import ChatReply
from server.fields.parameters import CHAT_PARAMETERS
from server.generate.generation import Api, generate, serving_of
from server.generate.plan import chat_plan
from server.wire.body import parse_body

router = APIRouter()

CHAT = Api(id_prefix="chatcmpl-", plan=chat_plan, reply=ChatReply)


@router.post("/chat/completions")
async def create_chat_completion(http: Request) -> Response:
    parsed = await parse_body(http, ChatBody, CHAT_PARAMETERS, strict=serving_of(http).options.strict_params)
    return await generate(http, parsed.body, parsed.ignored, CHAT)
