"""Errors on the wire: the only place that knows which status an error has. An API's own words are in its folder."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.errors import ContextLengthError, EngineNotReadyError, OctavoError, QueueFullError, RequestError
from server.errors import (
    AnswerCancelledError,
    ApiKeyError,
    BodyTooLargeError,
    ClientGoneError,
    ForbiddenError,
    MediaTypeError,
    RequestTimeoutError,
    UnknownModelError,
    UnknownRequestError,
    UnknownResponseError,
    UploadsFullError,
    clip,
)
from server.fields.common import Answer
from server.wire.json_text import encoded

logger = logging.getLogger("octavo.server")

CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it keeps logs honest


class ErrorDetails(Answer):
    message: str
    type: Literal[
        "invalid_request_error", "authentication_error", "not_found_error", "rate_limit_error", "server_error"
    ]
    param: str | None
    code: str | None
    n_prompt_tokens: int = 0  # with context_length_exceeded
    n_ctx: int = 0


class ErrorReply(Answer):
    error: ErrorDetails


@dataclass(frozen=True, slots=True, kw_only=True)
class WireError:
    """One error as it is sent."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)


Words = Callable[[WireError], Mapping[str, object]]  # an error -> the body of an answer, in the words of one API


def openai_words(error: WireError) -> dict[str, object]:
    words = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": {**words, **error.details}}


def wire_error(error: Exception) -> WireError:
    match error:
        case RequestError():
            return _request_error(error)
        case QueueFullError(retry_after=seconds):
            headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
            return WireError(
                status=429, message=str(error), type="rate_limit_error", code="rate_limit_exceeded", headers=headers
            )
        case EngineNotReadyError():
            headers = {"Retry-After": "1"}
            return WireError(status=503, message=str(error), type="server_error", code="not_ready", headers=headers)
        case UploadsFullError():
            headers = {"Retry-After": "1", "Connection": "close"}
            return WireError(status=503, message=str(error), type="server_error", code="uploads_full", headers=headers)
        case ClientGoneError():
            return WireError(status=CLIENT_CLOSED_REQUEST, message=str(error), code="client_closed_request")
        case AnswerCancelledError():
            return WireError(status=CLIENT_CLOSED_REQUEST, message=str(error), code="request_cancelled")
        case HTTPException():
            return _http_error(error)
        case _:
            return _our_fault(error)


def _request_error(error: RequestError) -> WireError:
    status, kind = 400, "invalid_request_error"
    details: dict[str, int] = {}
    headers: dict[str, str] = {}
    match error:
        case ApiKeyError():
            status, kind = 401, "authentication_error"
            headers = {"WWW-Authenticate": "Bearer"}
        case ForbiddenError():
            status = 403
        case UnknownModelError() | UnknownRequestError() | UnknownResponseError():
            status, kind = 404, "not_found_error"
        case BodyTooLargeError():
            status = 413
            headers = {"Connection": "close"}
        case RequestTimeoutError():
            status = 408
            headers = {"Connection": "close"}
        case MediaTypeError():
            status = 415
        case ContextLengthError(prompt_tokens=prompt_tokens, context_length=context_length):
            details = {"n_prompt_tokens": prompt_tokens, "n_ctx": context_length}
    return WireError(
        status=status,
        message=str(error),
        type=kind,
        param=error.param,
        code=error.code,
        headers=headers,
        details=details,
    )


def _http_error(error: HTTPException) -> WireError:
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            message = "There is nothing at this path; the API is under /v1, for instance POST /v1/chat/completions."
            return WireError(status=404, message=message, type="not_found_error", code="unknown_url", headers=headers)
        case 405:
            allowed = headers.get("allow") or headers.get("Allow") or "another method"
            message = f"This path does not take that method; use {allowed}."
            return WireError(status=405, message=message, code="method_not_allowed", headers=headers)
        case status:
            return WireError(status=status, message=clip(str(error.detail)), headers=headers)


def _our_fault(error: Exception) -> WireError:
    message = str(error) if isinstance(error, OctavoError) else "The server met a fault of its own; see its log."
    headers = {"x-should-retry": "false"}
    return WireError(status=500, message=message, type="server_error", code="internal_error", headers=headers)


class ErrorResponse(Response):
    """An error in the words of the API that was called: its path tells, once the answer is sent."""

    media_type = "application/json"

    def __init__(self, wire: WireError) -> None:
        super().__init__(status_code=wire.status, headers=wire.headers)
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        words: Words = scope["octavo.words"]
        self.body = encoded(words(self._wire))
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def error_response(error: Exception) -> Response:
    return ErrorResponse(wire_error(error))


async def _answer_error(request: Request, error: Exception) -> Response:
    response = error_response(error)
    if response.status_code == 500:
        logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return response


def install_error_handlers(app: Starlette) -> None:
    for kind in (OctavoError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
