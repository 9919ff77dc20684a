"""POST /v1/embeddings."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.embeddings.body import EmbeddingsBody
from server.api.embeddings.reply import EMBEDDING_PARAMETERS, EmbeddingRequest, embedding_list, text_tokens
from server.fields.parameters import ignored_header
from server.generate.generation import admit, context_of, serving_of
from server.logs import RequestLog
from server.wire.body import parse_body

router = APIRouter()


@router.post("/embeddings")
async def create_embeddings(http: Request) -> Response:
    strict = serving_of(http).options.strict_params
    parsed = await parse_body(http, EmbeddingsBody, EMBEDDING_PARAMETERS, strict=strict)
    body = parsed.body
    context = context_of(http, body.model, "embd-")
    model = context.model
    texts = await run_in_threadpool(text_tokens, body, model)

    def submit(log: RequestLog) -> EmbeddingRequest:
        embeddings = model.service.embed(
            context.id,
            texts,
            priority=body.priority,
            caller=context.caller_bytes,
            cache_salt=body.cache_salt or "",
        )
        return EmbeddingRequest(embeddings, log, context.caller)

    request = admit(http, context, submit, prompts=texts, choices=len(texts), ignored=parsed.ignored)
    vectors = await request.vectors(http.receive)
    content = await run_in_threadpool(embedding_list, vectors, body, model, request.log.prompt_tokens)
    return Response(content, headers=ignored_header(parsed.ignored), media_type="application/json")
