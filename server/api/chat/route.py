"""POST /v1/chat/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.chat.body import ChatBody
from server.api.chat.reply import ChatShape
from server.fields.parameters import CHAT_PARAMETERS
from server.generate.generation import Api, generate
from server.generate.plan import chat_plan

router = APIRouter()

CHAT = Api(
    id_prefix="chatcmpl-",
    body=ChatBody,
    parameters=CHAT_PARAMETERS,
    plan=chat_plan,
    shape=lambda body, plan, tokenizer, options: ChatShape(body, plan, tokenizer, options.reasoning_field),
)


@router.post("/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    return await generate(request, CHAT)
