"""GET /docs and /openapi.json: the API described, without a word from another host."""

from functools import cache

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from server.docs_page import HEADERS, PAGE
from server.openapi import openapi_document

router = APIRouter()


@router.get("/openapi.json")
async def read_openapi() -> Response:
    return Response(_document(), media_type="application/json")


@router.get("/docs")
async def read_docs() -> Response:
    return Response(PAGE, headers=HEADERS, media_type="text/html")


@cache
def _document() -> bytes:
    return orjson.dumps(openapi_document())
