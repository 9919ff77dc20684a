"""POST /v1/chat/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.convert import chat_request
from server.parameters import CHAT_PARAMETERS
from server.protocol.chat import ChatBody
from server.replies import CHAT
from server.routes.generation import generate

router = APIRouter()


@router.post("/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    return await generate(request, ChatBody, CHAT_PARAMETERS, chat_request, CHAT)
