"""The OpenAPI document: FastAPI makes it of the routes, and we add what FastAPI has no word for.

That is: the events of a stream, keys, and that nothing is answered with 422 here. Nothing that serves needs this
module, and FastAPI with it: importing that takes a fifth of the time until the port answers.
"""

import re
import warnings
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.responses import Response

from engine.version import VERSION
from server.wire.endpoint import Endpoint

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    400: "The request asks for what cannot be done.",
    401: "An API key is needed, and none that is known was sent.",
    403: "The Host or the Origin is not one that this server trusts.",
    404: "No such model, request or path.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    429: "The queue is full; Retry-After says when to try again.",
    499: "The answer was cancelled.",
    500: "A fault of the server's own.",
    503: "The model is loading, or the server is stopping.",
}
DONE = "[DONE]"
OF_EVERY_PATH = (403, 500)
OF_BODIES = (400, 404, 413, 415, 429, 499)
OF_PATTERNS = (400, 404)
KEYS: list[Json] = [{"bearer": []}, {"x-api-key": []}, {}]
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
DESCRIPTION = (
    "Every path under /v1 is also served without the prefix. Parameters that have no effect are listed in the"
    " x-ignored-params header; what would change an answer and is not done is refused with 400."
)


def _described(row: Endpoint) -> Json:
    """What FastAPI is told of a row beside its path, its handler and its method."""
    return {
        "operation_id": f"{row.method.lower()}{re.sub(r'[^a-z]+', '_', row.plain_path)}".rstrip("_"),
        "tags": [row.group],
        "summary": row.summary,
        "description": "",
        "response_description": row.summary,
        "responses": _responses(row),
        "openapi_extra": _extra(row),
        **_answer(row),
    }


def answer_type(name: str) -> type[BaseModel]:
    """A type that a row names."""
    named: type[BaseModel] = resolve_name(name)
    return named


def _is_media_type(answer: str) -> bool:
    return "/" in answer


def _answer(row: Endpoint) -> Json:
    if _is_media_type(row.answer):
        return {"response_model": None, "response_class": Response}  # of no type: _responses tells it
    answer = answer_type(row.answer)
    return {"response_model": list[answer] if row.is_list else answer}  # type: ignore[valid-type]


def _responses(row: Endpoint) -> dict[int | str, Json]:
    statuses = {*OF_EVERY_PATH, *(() if row.is_open else (401, 503))}
    statuses |= {*OF_BODIES} if row.parameters is not None else set()
    statuses |= {*OF_PATTERNS} if row.is_pattern else set()
    failures: dict[int | str, Json] = {
        status: {"description": ERRORS[status], "model": answer_type(row.error)} for status in sorted(statuses)
    }
    if row.may_be_unready is not None:
        failures[503] = {"description": ERRORS[503], "model": answer_type(row.may_be_unready)}
    if _is_media_type(row.answer):
        failures[200] = {"content": {row.answer: {}}}
    if row.events is not None:
        failures[200] = {"content": {"text/event-stream": {"schema": _event(row)}}}
    return failures


def _event(row: Endpoint) -> Json:
    """One event of a stream; OpenAPI 3.1 has no word for the whole of it."""
    assert row.events is not None
    models = answer_type(row.events), answer_type(row.error)
    events, error = ({"$ref": REFERENCE.format(model=model.__name__)} for model in models)
    about = f"With 'stream': true. Each event's data is a {models[0].__name__}, and the last is {row.last_event}."
    data: Json = {"type": "string", "contentMediaType": "application/json", "contentSchema": events}
    if row.last_event == DONE:
        data["contentSchema"] = {"anyOf": [events, error]}
        data = {"anyOf": [{"const": DONE}, data]}
    return {"type": "object", "description": about, "properties": {"data": data}, "required": ["data"]}


def _extra(row: Endpoint) -> Json:
    extra: Json = {"security": [] if row.is_open else KEYS}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", row.plain_path)
    ]
    if parameters := in_path + [{"name": name, "in": "query", "schema": schema} for name, schema in row.query.items()]:
        extra["parameters"] = parameters
    if row.example is not None:
        extra["requestBody"] = {"content": {"application/json": {"example": row.example}}}
    return extra


def openapi_document(endpoints: Sequence[Endpoint]) -> Json:
    """The document of these endpoints; it takes a second."""
    router = APIRouter()
    for row in endpoints:
        router.add_api_route(row.path, row.handler, methods=[row.method], **_described(row))
    with warnings.catch_warnings():  # FastAPI names each body by an alias, of which deferred types then warn
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        document = get_openapi(title="Octavo", version=VERSION, description=DESCRIPTION, routes=router.routes)
    streamed = {answer_type(row.events) for row in endpoints if row.events is not None}
    events = sorted(streamed, key=lambda model: model.__name__)
    components: Json = document["components"]
    _, of_events = models_json_schema([(model, "serialization") for model in events], ref_template=REFERENCE)
    components["schemas"] = {**of_events.get("$defs", {}), **components["schemas"]}
    components["securitySchemes"] = SECURITY_SCHEMES
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    return document
