"""Errors as the Messages API words them."""

PATHS = ("/v1/messages", "/messages")
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def is_messages_path(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in PATHS)


def messages_error(status: int, message: str) -> dict[str, object]:
    """The body of an answer of this status, or of an event in a stream that cannot go on."""
    kind = TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
