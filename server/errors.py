"""Errors of the HTTP face; server/wire/wire_error.py says how each is sent."""

from engine.errors import OctavoError, RequestError


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
