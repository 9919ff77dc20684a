"""GET /docs and /openapi.json: the API described, without a word from another host."""

from functools import cache

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.docs_page import HEADERS, PAGE


async def read_openapi(_: Request) -> Response:
    return Response(await run_in_threadpool(_document), media_type="application/json")


async def read_docs(_: Request) -> Response:
    return Response(PAGE, headers=HEADERS, media_type="text/html")


@cache
def _document() -> bytes:
    # Imported late: the types of all answers take a fifth of a second, which no start should wait for.
    from server.openapi import openapi_document

    return orjson.dumps(openapi_document())


ROUTES = (
    Route("/openapi.json", read_openapi),
    Route("/docs", read_docs),
)
