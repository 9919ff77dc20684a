"""What every answer must be, whatever was asked: an error of the API's shape, or a stream of the events described."""

import httpx
import orjson

from server.api.messages.answers import MessagesErrorReply
from server.wire.endpoint import Endpoint
from server.wire.openapi import answer_type
from server.wire.wire_error import ErrorReply


def assert_error_shape(path: str, answer: httpx.Response) -> None:
    """Anthropic's shape on its own paths, OpenAI's on all others."""
    kind = MessagesErrorReply if path.removeprefix("/v1").startswith("/messages") else ErrorReply
    reply = kind.model_validate_json(answer.content)
    assert reply.error.message
    assert answer.headers["content-type"] == "application/json"


def assert_stream(operation: Endpoint, text: str) -> None:
    """Every event is of the type described, and the last is the one that ends a stream of this API."""
    assert operation.events is not None
    event_type = answer_type(operation.events)
    events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    for event in events:
        if event != "[DONE]":
            event_type.model_validate_json(event)
    last = "[DONE]" if events[-1] == "[DONE]" else orjson.loads(events[-1])["type"]
    assert last in operation.last_event
