"""GET /docs and /openapi.json: the API described, without a word from another host."""

from functools import cache

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from server.api.docs.page import HEADERS, PAGE

router = APIRouter()


@router.get("/openapi.json")
async def read_openapi() -> Response:
    return Response(await run_in_threadpool(_document), media_type="application/json")


@router.get("/docs")
async def read_docs() -> Response:
    return Response(PAGE, headers=HEADERS, media_type="text/html")


@cache
def _document() -> bytes:
    # Imported late: the types of all answers take a fifth of a second, which no start should wait for.
    from server.api.docs.openapi import openapi_document

    return orjson.dumps(openapi_document())
