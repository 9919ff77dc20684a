"""POST /v1/chat/completions."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.chat_reply import ChatShape
from server.convert import chat_plan
from server.parameters import CHAT_PARAMETERS
from server.protocol.chat import ChatBody
from server.routes.generation import Api, generate

CHAT = Api(
    id_prefix="chatcmpl-",
    body=ChatBody,
    parameters=CHAT_PARAMETERS,
    plan=chat_plan,
    shape=lambda body, plan, tokenizer, options: ChatShape(body, plan, tokenizer, options.reasoning_field),
)


async def create_chat_completion(request: Request) -> Response:
    return await generate(request, CHAT)


ROUTES = (Route("/chat/completions", create_chat_completion, methods=["POST"]),)
