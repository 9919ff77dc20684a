"""POST /v1/embeddings."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.api.embeddings.body import EmbeddingsBody
from server.api.embeddings.reply import EMBEDDING_PARAMETERS, EmbeddingWork, embedding_list, text_tokens
from server.fields.parameters import ignored_header
from server.generate.replies import new_id
from server.logs import RequestLog, access
from server.serving import OpenRequest, Serving
from server.wire.body import parse_body

router = APIRouter()


@router.post("/embeddings")
async def create_embeddings(http: Request) -> Response:
    serving: Serving = http.app.state.serving
    parsed = await parse_body(http, EmbeddingsBody, EMBEDDING_PARAMETERS, strict=serving.options.strict_params)
    model = serving.model_named(parsed.body.model)
    texts = await run_in_threadpool(text_tokens, parsed.body, model)
    log = RequestLog(
        id=new_id("embd-"),
        request_id=http.scope["octavo.request_id"],
        model=model.id,
        path=http.scope["path"],
        observer=serving.request_observer,
        choices=len(texts),
        prompt_tokens=sum(map(len, texts)),
    )
    caller = http.scope.get("octavo.caller", "")
    embeddings = model.service.embed(
        log.id,
        texts,
        priority=parsed.body.priority,
        caller=bytes.fromhex(caller),
        cache_salt=parsed.body.cache_salt or "",
    )
    http.scope["octavo.place"].leave()
    work = EmbeddingWork(embeddings, log)
    entry = OpenRequest(id=log.id, request_id=log.request_id, caller=caller, cancel=work.cancel)
    serving.open_requests.add(entry)
    headers = ignored_header(parsed.ignored)
    if headers:
        access.info("%s ignores %s", log.id, headers["x-ignored-params"])
    try:
        vectors = await work.vectors(http.receive)
    finally:
        serving.open_requests.remove(entry)
    content = await run_in_threadpool(embedding_list, vectors, parsed.body, model, log.prompt_tokens)
    return Response(content, headers=headers, media_type="application/json")
