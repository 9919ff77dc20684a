"""POST /v1/completions."""

from starlette.requests import Request
from starlette.responses import Response

from server.api.completions.body import CompletionBody
from server.api.completions.reply import CompletionReply
from server.generate.generation import Api, generate
from server.generate.plan import completion_plan

COMPLETION = Api(id_prefix="cmpl-", plan=completion_plan, reply=CompletionReply)


async def create_completion(http: Request, body: CompletionBody) -> Response:
    return await generate(http, body, COMPLETION)
