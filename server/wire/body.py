"""From the bytes of a body to a checked protocol object and the names of what it asks for in vain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from engine.errors import RequestError
from server.errors import MediaTypeError, clip
from server.fields.common import ProtocolModel
from server.fields.parameters import Nested, Parameter, ignored_parameters, strictly
from server.validation import request_error
from server.wire.body_intake import Body
from server.wire.limits import check_depth

LONGEST_AT_ONCE = 1 << 18  # bytes that are decoded and checked on the event loop

B = TypeVar("B", bound=ProtocolModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[B]):
    body: B
    ignored: list[str]


async def parse_body(
    request: Request, model: type[B], table: Mapping[str, Parameter], *, strict: bool, nested: Nested | None = None
) -> Parsed[B]:
    """Decode and check one request, whose body has been read; raises RequestError and its kin."""
    _check_media_type(request.headers.get("content-type", ""))
    content: Body = request.scope["octavo.content"]
    raw = content.take()
    if len(raw) > LONGEST_AT_ONCE:  # other streams go on meanwhile
        return await run_in_threadpool(parse_bytes, raw, model, table, strict=strict, nested=nested)
    return parse_bytes(raw, model, table, strict=strict, nested=nested)


def parse_bytes(
    raw: bytes, model: type[B], table: Mapping[str, Parameter], *, strict: bool, nested: Nested | None = None
) -> Parsed[B]:
    """Decode and check a body that has been read."""
    given, notes = _unwrap_extra_body(_json_object(raw))
    notes += ignored_parameters(given, table, nested)
    if strict:
        strictly(notes)
    try:
        return Parsed(model.model_validate(given), notes)
    except ValidationError as error:
        raise request_error(error, given) from None


def _check_media_type(content_type: str) -> None:
    # Also what keeps a page of another site from posting here without the browser asking first.
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise MediaTypeError(content_type)


def _json_object(raw: bytes) -> dict[str, Any]:
    check_depth(raw)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The body is not valid JSON: {clip(str(error))}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_type")
    return value


def _unwrap_extra_body(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """`extra_body` is an argument of the SDK, which merges it into the body; written out by hand it means the same."""
    extra = body.get("extra_body")
    if not isinstance(extra, dict):
        return body, []
    rest = {name: value for name, value in body.items() if name != "extra_body"}
    return {**rest, **extra}, ["extra_body"]
