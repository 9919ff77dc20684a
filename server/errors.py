"""Errors on the wire: the OpenAI shape, and the only place that knows status codes."""

import logging
import math
from dataclasses import dataclass, field

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.errors import (
    ContextLengthError,
    EngineNotReadyError,
    OctavoError,
    QueueFullError,
    RequestError,
)
from server.api.messages.errors import is_messages_path, messages_error

logger = logging.getLogger("octavo.server")

CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it keeps logs honest


class UnknownModelError(RequestError):
    """The request names a model that is not served here."""

    def __init__(self, name: str, served: tuple[str, ...]) -> None:
        super().__init__(
            f"The model '{clip(name)}' is not served here; use one of: {', '.join(served)}.",
            param="model",
            code="model_not_found",
        )


class BodyTooLargeError(RequestError):
    """The request's body is longer than the server reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The request body is larger than the {limit} bytes that this server reads; send less.",
            code="request_too_large",
        )


class RequestTimeoutError(RequestError):
    """The request's body did not come, or came too slowly."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The request's body did not arrive: next to nothing of it came within {seconds:g} s; send it again.",
            code="request_timeout",
        )


class UploadsFullError(OctavoError):
    """The bodies that are being read take all the memory that they may, and this one is the largest."""

    def __init__(self) -> None:
        super().__init__("The server is receiving too many large requests at once; try again in about 1 s.")


class MediaTypeError(RequestError):
    """The request's body is not declared as JSON."""

    def __init__(self, content_type: str) -> None:
        found = f"'{clip(content_type)}'" if content_type else "none"
        super().__init__(
            f"The body must be JSON with the header Content-Type: application/json, but the type sent is {found}.",
            code="unsupported_media_type",
        )


class ApiKeyError(RequestError):
    """The request carries no API key that this server knows."""

    def __init__(self) -> None:
        super().__init__(
            "This server asks for an API key, and the request carries none that it knows;"
            " send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
            code="invalid_api_key",
        )


class ForbiddenError(RequestError):
    """The request names a host, or comes from a web page, that this server was not told to trust."""


class UnknownRequestError(RequestError):
    """No request of this caller by that id is being answered."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No request '{clip(name)}' of yours is being answered now; it may have ended.",
            param="id",
            code="request_not_found",
        )


class UnknownResponseError(RequestError):
    """The caller has no response of this id, or it has been forgotten."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No response '{clip(name)}' of yours is kept here; it may have been deleted or forgotten,"
            " or made with 'store': false.",
            param="response_id",
            code="response_not_found",
        )


class ClientGoneError(OctavoError):
    """The client closed its connection before the answer was complete."""


class AnswerCancelledError(OctavoError):
    """Somebody asked for the answer to be ended, by its id."""


def clip(text: str, limit: int = 200) -> str:
    """The text as an error message may echo it."""
    return text if len(text) <= limit else text[:limit] + "…"


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

    def body(self) -> dict[str, object]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**error, **self.details}}


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
        case RequestValidationError():
            return WireError(status=400, message="The request's path or query is not valid.", code="invalid_value")
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
    """An error in the shape of the API that was called: the path tells, once the answer is sent."""

    media_type = "application/json"

    def __init__(self, wire: WireError) -> None:
        super().__init__(status_code=wire.status, headers=wire.headers)
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = self._wire
        is_anthropic = is_messages_path(scope["path"])
        body = messages_error(wire.status, wire.message, wire.param) if is_anthropic else wire.body()
        self.body = orjson.dumps(body)
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def error_response(error: Exception) -> Response:
    return ErrorResponse(wire_error(error))


async def _answer_error(request: Request, error: Exception) -> Response:
    response = error_response(error)
    if response.status_code == 500:
        logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return response


def install_error_handlers(app: FastAPI) -> None:
    for kind in (OctavoError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
