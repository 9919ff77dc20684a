"""What one endpoint of the API is: a row of the table in server/routes.py, and how a request's path finds its row."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from server.fields.parameters import Nested, Parameter
from server.wire.body import read_body
from server.wire.wire_error import Words, openai_words

PREFIX = "/v1"  # paths below it are served without it too, for clients whose base URL lacks it
UNKNOWN = "unknown"  # the label of what is no path of ours, so that metrics do not grow with what clients send

Method = Literal["GET", "POST", "DELETE"]
Handler = Callable[..., Awaitable[Response]]  # (http), or (http, body) where the endpoint takes a body


class Work(Enum):
    """What answering a request takes."""

    ANSWER = "answer"  # a place in the engine's queue
    TEXT = "text"  # templates and tokenizers, and no engine
    NONE = "none"  # a glance: its body is not read


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path. All that the server needs to know of it stands here, once."""

    method: Method
    path: str
    handler: Handler
    work: Work
    group: str
    summary: str
    answer: str  # the name of its type, as pkgutil.resolve_name reads it, or the media type of what is not JSON
    parameters: Mapping[str, Parameter] | None  # what becomes of each of its body's; None: it takes no body
    nested: Nested | None = None  # names unread keys within the body, where the API is not OpenAI's chat
    is_list: bool = False  # the answer is an array of it
    events: str | None = None  # the name of the type of what each event of a stream holds
    last_event: str = "[DONE]"  # of a stream
    is_open: bool = False  # needs no API key
    answers_head: bool = False
    may_be_unready: str | None = None  # the name of the type that 503 answers with, where that is no error
    example: Mapping[str, Any] | None = None  # of a body
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the schema of each optional argument
    error: str = "server.wire.wire_error:ErrorReply"
    words: Words = openai_words  # how its errors are worded

    @cached_property
    def body(self) -> type[BaseModel] | None:
        """The type of its body, as the handler has it."""
        body: type[BaseModel] | None = get_type_hints(self.handler).get("body")
        return body

    @property
    def methods(self) -> tuple[str, ...]:
        return (self.method, "HEAD") if self.answers_head else (self.method,)

    @property
    def is_pattern(self) -> bool:
        return "{" in self.path

    @property
    def plain_path(self) -> str:
        """The path without the converters of its parameters, as documents write it."""
        plain: str = compile_path(self.path)[1]
        return plain


@dataclass(frozen=True)
class Resource:
    """What lies at one path: the endpoints by their methods."""

    label: str  # the path without the prefix
    words: Words = openai_words
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return any(endpoint.is_open for endpoint in self.endpoints.values())

    def work(self, method: str) -> Work:
        endpoint = self.endpoints.get(method)
        return Work.NONE if endpoint is None else endpoint.work


class Resources:
    """Finds what lies at a path; with and without the prefix it is the same."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            at_path = paths.setdefault(endpoint.path.removeprefix(PREFIX), {})
            at_path |= dict.fromkeys(endpoint.methods, endpoint)
        found = {path: _resource(path, at_path) for path, at_path in paths.items()}
        self._plain = {path: resource for path, resource in found.items() if "{" not in path}
        self._patterns = [(compile_path(path)[0], resource) for path, resource in found.items() if "{" in path]
        self._unknown = Resource(UNKNOWN)

    def at(self, path: str) -> Resource:
        """The resource of a path in its plain form; of an unknown path, one without endpoints."""
        path = path.removeprefix(PREFIX)
        if path in self._plain:
            return self._plain[path]
        matches = (resource for pattern, resource in self._patterns if pattern.match(path))
        return next(matches, None) or self._nothing_at(path)

    def label(self, path: str) -> str:
        return self.at(path).label

    def _nothing_at(self, path: str) -> Resource:
        """An unknown path below one of ours is answered in the words of that one."""
        parents = (self._plain[parent] for parent in self._plain if parent != "/" and path.startswith(parent + "/"))
        parent = next(parents, None)
        return self._unknown if parent is None else Resource(UNKNOWN, parent.words)


def _resource(path: str, endpoints: Mapping[str, Endpoint]) -> Resource:
    (words,) = {endpoint.words for endpoint in endpoints.values()}
    label = next(iter(endpoints.values())).plain_path.removeprefix(PREFIX)
    return Resource(label, words, endpoints)


def resource_of(scope: Mapping[str, Any]) -> Resource:
    """What the request asks for; known from the outermost layer on."""
    resource: Resource = scope["octavo.resource"]
    return resource


def answering(row: Endpoint) -> Handler:
    """The row's handler as a route calls it, with a body that is checked.

    Long bodies are checked in a thread, and every error is worded in the shape of the API.
    """

    async def answer(http: Request) -> Response:
        if row.parameters is None or row.body is None:
            return await row.handler(http)
        strict: bool = http.app.state.serving.options.strict_params
        body = await read_body(http, row.body, row.parameters, strict=strict, nested=row.nested)
        return await row.handler(http, body)

    return answer
