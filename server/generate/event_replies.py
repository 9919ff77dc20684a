"""The way of the APIs that are chats in another form: one reply object makes their events and their whole answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import orjson
from starlette.requests import Request as HttpRequest

from engine.errors import RequestError
from engine.formats.parts import Part
from server.errors import WireError
from server.generate.answer import Exchange, Finish, Plan, Update
from server.generate.chat_form import ChatForm, Json
from server.generate.plan import chat_plan
from server.generate.prompts import chat_prompt
from server.generate.replies import Speed
from server.served import ServedModel
from server.serving import Serving
from server.settings import ServingOptions


class Reply(Protocol):
    """One answer as it comes to be; each call returns the events that tell of it."""

    def start(self) -> list[Json]: ...

    def push(self, parts: Sequence[Part]) -> list[Json]: ...

    def finish(self, finish: Finish) -> list[Json]: ...

    @property
    def whole(self) -> Json: ...


OnDone = Callable[[Json], None]  # hears of the whole answer before its client does


def plan_of(form: ChatForm, model: ServedModel, request_id: str, options: ServingOptions) -> Plan:
    """The plan of a chat in another form. Blocking; errors and notes are in the request's own names."""
    body = form.validated()
    try:
        plan = chat_plan(body, model, request_id, options)
    except RequestError as error:
        raise form.renamed(error) from error.__cause__
    return replace(plan, notes=form.own_names(plan.notes))


def count_tokens(form: ChatForm, model: ServedModel, options: ServingOptions) -> tuple[int, list[str]]:
    """How many tokens its prompt has, be it longer than the context, and what has no effect. Blocking."""
    body = form.validated()
    try:
        prompt = chat_prompt(body, model, options.default_template_kwargs)
    except RequestError as error:
        raise form.renamed(error) from error.__cause__
    return len(prompt.tokens), list(form.own_names(prompt.notes))


class EventWriter:
    """Updates to the events of a stream, as a reply tells them."""

    def __init__(
        self, reply: Reply, failure: Callable[[WireError], Sequence[Json]], on_done: OnDone | None = None
    ) -> None:
        """`failure` makes the last events of a stream in which something goes wrong."""
        self._reply = reply
        self._failure = failure
        self._on_done = on_done

    def start(self) -> bytes:
        return encoded(self._reply.start())

    def write(self, update: Update) -> bytes:
        events = self._reply.push(update.parts)
        if update.finish is not None:
            events += self._reply.finish(update.finish)
            if self._on_done is not None:
                self._on_done(self._reply.whole)
        return encoded(events)

    def end(self) -> bytes:
        return b""

    def error(self, error: WireError) -> bytes:
        return encoded(self._failure(error))


async def collected(exchange: Exchange, reply: Reply, on_done: OnDone | None = None) -> Json:
    async for update in exchange.updates():
        reply.push(update.parts)
        if update.finish is not None:
            reply.finish(update.finish)
    if on_done is not None:
        on_done(reply.whole)
    return reply.whole


def encoded(events: Sequence[Json]) -> bytes:
    """Events as frames that carry their type twice, as these APIs do: in the `event` line and in the data."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events)


def serving_of(http: HttpRequest) -> Serving:
    serving: Serving = http.app.state.serving
    return serving


def speed_of(serving: Serving, model: ServedModel) -> Speed:
    return Speed(model.bytes_per_token, serving.memory_bandwidth)
