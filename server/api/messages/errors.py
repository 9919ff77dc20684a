"""Errors as the Messages API words them."""

from server.wire.wire_error import WireError

PATHS = ("/v1/messages", "/messages")
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


# What the SDK's helpers look for: told that there are no threads here, they send the whole conversation instead.
ERROR_CODES = {"thread": "thread_unsupported_request"}


def messages_words(error: WireError) -> dict[str, object]:
    """The body of an answer."""
    return messages_error(error.status, error.message, error.param)


def messages_error(status: int, message: str, param: str | None = None) -> dict[str, object]:
    """The body of an answer of this status, or of an event in a stream that cannot go on."""
    kind = TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error: dict[str, object] = {"type": kind, "message": message}
    if param in ERROR_CODES:
        error["details"] = {"error_code": ERROR_CODES[param]}
    return {"type": "error", "error": error}
