"""Which requests get a place: the kind of work decides, and a body that is not there keeps nobody out."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.types import Message

from engine.errors import QueueFullError
from engine.text.tokenizer import RenderedChat
from server.errors import ClientGoneError
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire import admission, http_protocol
from server.wire.admission import Line, Place
from server.wire.endpoint import Work
from tests.fuzz.bodies import BODIES
from tests.server.harness import CHAT, LiveServer, http_client, live_server
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, ScriptedService, scripted_model
from tests.server.wire.test_http_protocol import all_received

CHATS = ("/chat/completions/render", "/chat/completions/input_tokens", "/apply-template")


def test_every_endpoint_that_takes_a_body_is_of_a_kind_of_work() -> None:
    """Bug R3: one that was forgotten in a list of its own failed at its first request."""
    assert all((row.work is Work.NONE) == (row.body is None) for row in ENDPOINTS)
    assert all((row.parameters is None) == (row.body is None) for row in ENDPOINTS)


def test_sockets_with_unfinished_bodies_keep_nobody_out_and_are_closed_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "REST_SECONDS", 1.0)
    model = ScriptedModel(ScriptedService(["a"], max_open=8))
    paths = [row.path for row in ENDPOINTS if row.body]
    with live_server(model, ServingOptions(drain_seconds=0, body_seconds=1.0)) as server, ExitStack() as stack:
        idle = [stack.enter_context(half_sent(server, path)) for path in paths * 3]
        for path in BODIES:
            assert httpx.post(f"{server.url}{path}", json=BODIES[path][0]).status_code == 200
        for connection in idle:
            all_received(connection)  # until it is closed


@contextmanager
def half_sent(server: LiveServer, path: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head.encode() + b"{")
        yield connection


@dataclass
class HeldTemplate(PlainTemplate):
    """Renders nothing until it is let go, but for chats that say `now`."""

    free: threading.Event = field(default_factory=threading.Event)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        if messages[0]["content"] != "now":
            assert self.free.wait(20)
        return super().render(messages, tools=tools, add_generation_prompt=add_generation_prompt, extra=extra)


async def test_more_texts_than_may_wait_are_429_and_chats_go_on_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_WAITING_TEXTS", 3)
    template = HeldTemplate()
    model = ScriptedModel(ScriptedService(["a"]), template)
    now = {**CHAT, "messages": [{"role": "user", "content": "now"}]}
    async with http_client(model) as client:
        waiting = [asyncio.create_task(client.post(CHATS[0], json=CHAT)) for _ in range(admission.TEXTS_AT_ONCE + 3)]
        await asyncio.sleep(0.1)
        for row in ENDPOINTS:
            if row.work is Work.TEXT:
                for each in (row.path, row.path.removeprefix("/v1")):
                    answer = await client.post(each, content=b"{ no JSON at all")
                    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert (await client.post("/v1/chat/completions", json=now)).status_code == 200
        template.free.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
        assert (await client.post(CHATS[1], json=now)).status_code == 200


async def test_however_many_texts_come_no_more_than_a_few_are_worked_on_at_once() -> None:
    running: list[int] = []
    most: list[int] = []

    @dataclass
    class CountingTemplate(PlainTemplate):
        def render(
            self,
            messages: Sequence[Mapping[str, object]],
            *,
            tools: Sequence[Mapping[str, object]] | None = None,
            add_generation_prompt: bool = True,
            extra: Mapping[str, object] | None = None,
        ) -> RenderedChat:
            running.append(1)
            most.append(len(running))
            threading.Event().wait(0.005)
            running.pop()
            return super().render(messages, tools=tools, add_generation_prompt=add_generation_prompt, extra=extra)

    async with http_client(ScriptedModel(ScriptedService(["a"]), CountingTemplate())) as client:
        answers = await asyncio.gather(*(client.post(path, json=CHAT) for path in CHATS * 10))
    assert {answer.status_code for answer in answers} == {200}
    assert max(most) == admission.TEXTS_AT_ONCE


async def test_faults_of_every_kind_give_their_places_back() -> None:
    async with http_client(scripted_model("x")) as client:
        for _ in range(admission.TEXTS_AT_ONCE + admission.MOST_WAITING_TEXTS + 1):
            assert (await client.post("/tokenize", json={"prompt": 1})).status_code == 400
        assert (await client.post("/tokenize", json={"prompt": "a"})).status_code == 200


async def staying() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def leaving() -> Message:
    return {"type": "http.disconnect"}


async def test_who_leaves_while_waiting_waits_no_more() -> None:
    room = Line(1, 2)
    first, gone, second = Place(), Place(), Place()
    await room.enter(first, staying)
    with pytest.raises(ClientGoneError):
        await room.enter(gone, leaving)
    gone.leave()
    entering = asyncio.create_task(room.enter(second, staying))
    await asyncio.sleep(0)
    assert not entering.done()
    first.leave()
    await entering
    second.leave()
    await room.enter(Place(), staying)


async def test_places_are_taken_in_the_order_in_which_they_were_asked_for() -> None:
    room = Line(1, 3)
    places = [Place() for _ in range(4)]
    order: list[int] = []

    async def work(number: int) -> None:
        await room.enter(places[number], staying)
        order.append(number)
        await asyncio.sleep(0)
        places[number].leave()

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


async def test_a_full_room_is_full_before_and_behind_the_body() -> None:
    room = Line(1, 1)
    await room.enter(Place(), staying)
    waiting = asyncio.create_task(room.enter(Place(), staying))
    await asyncio.sleep(0.01)
    with pytest.raises(QueueFullError):
        room.check()
    with pytest.raises(QueueFullError):
        await room.enter(Place(), staying)
    waiting.cancel()


async def test_long_texts_keep_no_short_one_waiting() -> None:
    template = HeldTemplate()
    short = {**CHAT, "messages": [{"role": "user", "content": "now"}]}
    long = {**CHAT, "messages": [{"role": "user", "content": "later " * 20_000}]}
    async with http_client(ScriptedModel(ScriptedService(["a"]), template)) as client:
        waiting = [asyncio.create_task(client.post(CHATS[0], json=long)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert (await client.post(CHATS[0], json=short)).status_code == 200
        assert not any(task.done() for task in waiting)
        template.free.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
