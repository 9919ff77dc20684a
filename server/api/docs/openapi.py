"""The OpenAPI document, made of the table of operations and the protocol's own types."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from engine.version import VERSION
from server.api.docs.operations import OPERATIONS, Operation

Json = dict[str, Any]
References = Mapping[type[Any], Json]  # from a model to what refers to its schema

REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    "400": "The request asks for what cannot be done.",
    "401": "An API key is needed, and none that is known was sent.",
    "403": "The Host or the Origin is not one that this server trusts.",
    "404": "No such model, request or path.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "429": "The queue is full; Retry-After says when to try again.",
    "499": "The answer was cancelled.",
    "500": "A fault of the server's own.",
    "503": "The model is loading, or the server is stopping.",
}
DONE = "[DONE]"
OF_EVERY_PATH = ("403", "500")
OF_BODIES = ("400", "413", "415", "429", "499")
KEYS: list[Json] = [{"bearer": []}, {"x-api-key": []}, {}]
DESCRIPTION = (
    "Every path under /v1 is also served without the prefix. Parameters that have no effect are listed in the"
    " x-ignored-params header; what would change an answer and is not done is refused with 400."
)


def openapi_document() -> Json:
    schemas, definitions = models_json_schema(
        sorted({*_models()}, key=lambda pair: (pair[0].__name__, pair[1])), ref_template=REFERENCE
    )
    references: References = {model: schema for (model, _), schema in schemas.items()}
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": VERSION, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _models() -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    found: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for operation in OPERATIONS:
        if operation.body is not None:
            found.append((operation.body, "validation"))
        answers = (operation.answer, operation.events, operation.may_be_unready, operation.error)
        found += [(answer, "serialization") for answer in answers if isinstance(answer, type)]
    return found


def _operation(operation: Operation, references: References) -> Json:
    described: Json = {
        "operationId": f"{operation.method}{re.sub(r'[^a-z]+', '_', operation.path)}".rstrip("_"),
        "tags": [operation.group],
        "summary": operation.summary,
        "security": [] if operation.is_open else KEYS,
        "responses": {"200": _success(operation, references), **_failures(operation, references)},
    }
    if parameters := _parameters(operation):
        described["parameters"] = parameters
    if operation.body is not None:
        content: Json = {"schema": references[operation.body]}
        if operation.example is not None:
            content["example"] = operation.example
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described


def _parameters(operation: Operation) -> list[Json]:
    names = re.findall(r"\{(\w+)\}", operation.path)
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names
    ]
    return in_path + [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()]


def _success(operation: Operation, references: References) -> Json:
    if isinstance(operation.answer, str):
        return {"description": operation.summary, "content": {operation.answer: {}}}
    schema = references[operation.answer]
    content: Json = {
        "application/json": {"schema": {"type": "array", "items": schema} if operation.is_list else schema}
    }
    if operation.events is not None:
        content["text/event-stream"] = {"schema": _event(operation, operation.events, references)}
    return {"description": operation.summary, "content": content}


def _event(operation: Operation, events: type[BaseModel], references: References) -> Json:
    """One event of a stream; OpenAPI 3.1 has no word for the whole of it."""
    about = f"With 'stream': true. Each event's data is a {events.__name__}, and the last is {operation.last_event}."
    data: Json = {"type": "string", "contentMediaType": "application/json", "contentSchema": references[events]}
    if operation.last_event == DONE:
        data["contentSchema"] = {"anyOf": [references[events], references[operation.error]]}
        data = {"anyOf": [{"const": DONE}, data]}
    return {"type": "object", "description": about, "properties": {"data": data}, "required": ["data"]}


def _failures(operation: Operation, references: References) -> Json:
    statuses = {*OF_EVERY_PATH, *(() if operation.is_open else ("401", "503"))}
    if operation.body is not None:
        statuses |= {*OF_BODIES, "404"}
    if "{" in operation.path:
        statuses |= {"400", "404"}
    failure = {"application/json": {"schema": references[operation.error]}}
    responses: Json = {status: {"description": ERRORS[status], "content": failure} for status in sorted(statuses)}
    if operation.may_be_unready is not None:
        unready = {"application/json": {"schema": references[operation.may_be_unready]}}
        responses["503"] = {"description": ERRORS["503"], "content": unready}
    return responses
