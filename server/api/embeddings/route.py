"""POST /v1/embeddings."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.embeddings.body import EmbeddingsBody
from server.api.embeddings.reply import EmbeddingRequest, embedding_list, text_tokens
from server.fields.parameters import ignored_header
from server.generate.generation import admit, context_of
from server.logs import RequestLog
from server.wire.body import ignored_of


async def create_embeddings(http: Request, body: EmbeddingsBody) -> Response:
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

    request = admit(http, context, submit, prompts=texts, choices=len(texts), ignored=ignored_of(http))
    vectors = await request.vectors(http.receive)
    content = await run_in_threadpool(embedding_list, vectors, body, model, request.log.prompt_tokens)
    return Response(content, headers=ignored_header(ignored_of(http)), media_type="application/json")
