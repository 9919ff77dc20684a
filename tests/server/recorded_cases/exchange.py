"""A recorded case: what a client sends to a scripted server, and the text that tells of every byte of the answers.

`masked` masks what is drawn by chance or taken from a clock. A case's `view`, where it has one, leaves more out: the
values of metrics, how many pings fill a silence, and what openapi.json says beside its paths and names.
"""

import asyncio
import json
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from server.settings import ServingOptions
from tests.server.harness import http_client, live_server, loading_client
from tests.server.scripted.engine import ScriptedModel, Step, scripted_model

NAMED = "RESPONSE_ID"  # stands in a path or a body for the id of the first response that was answered
JSON_TYPE = {"content-type": "application/json"}

# An id is masked by its place among those of its case, and keeps its prefix and the number of its digits.
IDS = re.compile(r"(chatcmpl-|cmpl-|embd-|msg_|resp_|rs_|fc_|fco_|call_|toolu_|req_)([0-9a-f]{24,32})(?![0-9a-f])")
# Times; 1700000000 is when the scripted model was made, and stays.
CLOCKS = re.compile(r'("(?:created|created_at|completed_at)":)(?!1700000000\b)\d{10}\b')
DATES = re.compile(r"(?m)^(\|date: )[^␍\n]+")
# The methods of a path are a set, whose order is drawn for each process.
METHODS = re.compile(r"\bHEAD, GET\b")

View = Callable[[str], str]  # what is recorded of a body, where it is not all of it
Build = Callable[[], ScriptedModel]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `runs_on`: it is not waited for until all others are answered."""

    method: str = "POST"
    path: str
    body: Any = None  # bytes are sent as they are, everything else as JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    runs_on: bool = False

    @property
    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def all_headers(self) -> dict[str, str]:
        is_json = self.body is not None and not isinstance(self.body, bytes)
        return {**(JSON_TYPE if is_json else {}), **self.headers}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests to one server. `raw`: bytes for a socket of a live server, in place of calls."""

    api: str  # the name of the file that holds it
    name: str
    calls: tuple[Call, ...] = ()
    raw: bytes | None = None
    model: Build = scripted_model
    options: ServingOptions | None = None
    prepare: Callable[[ScriptedModel], None] | None = None  # what happens to the model once it is loaded
    view: View | None = None
    is_loading: bool = False  # the model never comes

    @property
    def id(self) -> str:
        return f"{self.api}: {self.name}"


def says(*steps: Step) -> Build:
    """A model that answers everything with this script."""
    return lambda: scripted_model(*steps)


def whole_and_streamed(api: str, name: str, path: str, body: dict[str, Any], **more: Any) -> list[Case]:
    """The same request twice: for one whole answer, and for a stream of it."""
    streamed = {**body, "stream": True}
    return [
        Case(api=api, name=name, calls=(Call(path=path, body=body),), **more),
        Case(api=api, name=f"{name}, streamed", calls=(Call(path=path, body=streamed),), **more),
    ]


async def told(case: Case) -> str:
    """The text of a case as it is now."""
    if case.raw is not None:
        text = await asyncio.to_thread(_told_by_socket, case, case.raw)
    else:
        text = await _told_by_client(case)
    return masked(text)


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[0], len(numbers) + 1)
        return f"{match[1]}<{number}, {len(match[2])} digits>"

    text = IDS.sub(numbered, text)
    text = CLOCKS.sub(r"\1<now>", text)
    text = DATES.sub(r"\1<now>", text)
    return METHODS.sub("GET, HEAD", text)


async def _told_by_client(case: Case) -> str:
    model = case.model()
    clients = (
        loading_client(case.options)
        if case.is_loading
        else http_client(model, case.options, raise_app_exceptions=False)
    )
    pieces: list[str] = []
    running: list[tuple[Call, asyncio.Task[httpx.Response]]] = []
    async with clients as client:
        if case.prepare is not None:
            case.prepare(model)
        response_id = ""
        for call in case.calls:
            if call.runs_on:
                running.append((call, asyncio.create_task(_sent(client, call, response_id))))
                while not model.service.running:
                    await asyncio.sleep(0)
                await asyncio.sleep(0.1)  # until it has said what it says before it waits
                continue
            answer = await _sent(client, call, response_id)
            found = re.search(r"resp_[0-9a-f]{32}", answer.text)
            response_id = response_id or (found[0] if found else "")
            pieces.append(_exchange(call, answer, case.view, response_id))
        for call, task in running:
            pieces.append(_exchange(call, await asyncio.wait_for(task, 20), case.view, response_id))
    return "\n".join(pieces)


async def _sent(client: httpx.AsyncClient, call: Call, response_id: str) -> httpx.Response:
    content = call.content
    if content is not None:
        content = content.replace(NAMED.encode(), response_id.encode())
    path = call.path.replace(NAMED, response_id)
    return await client.request(call.method, path, content=content, headers=call.all_headers)


def _exchange(call: Call, answer: httpx.Response, view: View | None, response_id: str) -> str:
    body = answer.content.decode(errors="backslashreplace")
    lines = [f"> {call.method} {call.path.replace(NAMED, response_id)}"]
    lines += [f"> {name}: {value}" for name, value in call.headers.items()]
    if call.content is not None:
        lines.append(f"> {call.content.decode(errors='backslashreplace')[:2000].replace(NAMED, response_id)}")
    lines.append(f"< {answer.status_code}")
    lines += [
        f"< {name.decode('latin-1')}: {value.decode('latin-1')}"
        for name, value in answer.headers.raw
        if name.lower() != b"date" and not (view is not None and name.lower() == b"content-length")
    ]
    return "\n".join([*lines, *_body_lines(body if view is None else view(body))]) + "\n"


def _told_by_socket(case: Case, raw: bytes) -> str:
    pieces = []
    with (
        live_server(case.model(), case.options) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
    ):
        connection.sendall(raw)
        while piece := connection.recv(65536):
            pieces.append(piece)
    head, end, body = b"".join(pieces).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = _without_chunks(body)
    asked = [f"> {line}" for line in _visible(raw.decode("latin-1")[:2000])]
    return "\n".join([*asked, *_body_lines((head + end + body).decode(errors="backslashreplace"))]) + "\n"


def _without_chunks(body: bytes) -> bytes:
    """How a stream is cut into chunks depends on how fast the machine is; that it ends with the empty one does not."""
    content, rest = b"", body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length] if length else b"<last chunk>"
        assert rest[length : length + 2] == b"\r\n"
        rest = rest[length + 2 :]
    return content


def _body_lines(body: str) -> list[str]:
    """Each line after a bar; an end of line at the end leaves a bar alone."""
    return [f"|{line}" for line in _visible(body)]


def _visible(text: str) -> list[str]:
    return text.replace("\r", "␍").split("\n")
