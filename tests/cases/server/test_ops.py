"""Area ops: the server tells how it is, takes no more than it can, and stops without cutting anybody off."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import pytest

from engine.run import status
from server.settings import ServingOptions
from tests.cases.real import CHAT_PATH, HI, TEXT_PATH, Json, RealServer, serving, tiny_model
from tests.server.wire.test_disconnect import eventually

LONG: list[Json] = [{"role": "user", "content": "hello world, " * 250}]
BUSY: dict[str, list[tuple[str, Json]]] = {
    "prefill": [(CHAT_PATH, {"messages": LONG, "max_tokens": 2})] * 8,
    "tokenizing": [("/tokenize", {"content": "some words, " * 60_000})] * 2,
    "counting": [("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "word " * 60_000}]})]
    * 2,
    "compiling": [
        (
            CHAT_PATH,
            {"messages": HI, "structured_outputs": {"choice": [f"{n} word {n}" for n in range(2000)]}, "max_tokens": 3},
        )
    ],
    "reading": [(TEXT_PATH, {"prompt": ["x"] * 2048, "max_tokens": 1, "x": "y" * 4_000_000})] * 2,
}


@pytest.mark.parametrize("name", BUSY)
def test_probes_are_answered_while_the_server_works(calls: RealServer, name: str) -> None:
    """BB-060: the event loop is held by a prompt, a text or a grammar, and the probe kills a healthy server."""
    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(calls.post, path, body) for path, body in BUSY[name]]
        probes = []
        while not all(work.done() for work in working):
            probes += [calls.http.get(path).status_code for path in ("/health", "/ready", "/metrics", "/slots")]
    assert {work.result().status_code for work in working} <= {200, 400}
    assert set(probes) == {200}


def test_a_dead_engine_is_told_by_every_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BB-060: health says ok while nothing will ever be answered again; running streams hear of it."""
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    with serving(tiny_model(tmp_path, "plain", context=8192)) as server:
        assert server.http.get("/health").status_code == 200
        engine = server.live.model.service._engine
        with ThreadPoolExecutor(1) as pool:
            body = {"messages": HI, "stream": True, "ignore_eos": True}
            stream = pool.submit(server.post, CHAT_PATH, body)
            assert eventually(lambda: bool(server.model.service.status().running))
            monkeypatch.setattr(engine, "step", None)
            *_, error, done = stream.result().text.strip().split("\n\n")
        assert orjson.loads(error.removeprefix("data: "))["error"]["type"] == "server_error"
        assert done == "data: [DONE]"
        assert eventually(lambda: server.http.get("/health").status_code == 503)
        assert server.http.get("/ready").status_code == 503
        assert server.post(CHAT_PATH, {"messages": HI}).status_code == 503


def test_an_engine_that_hangs_is_told_and_so_is_its_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BB-060: a step that takes far longer than any before it."""
    monkeypatch.setattr(status, "LEAST_SECONDS", 0.2)
    with serving(tiny_model(tmp_path, "plain")) as server, ThreadPoolExecutor(1) as pool:
        server.complete(max_tokens=2)
        runner = server.live.model.service._runner
        run, proceed = runner.run, threading.Event()
        monkeypatch.setattr(runner, "run", lambda *step: run(*step) if proceed.wait(30) else None)
        answer = pool.submit(server.complete, max_tokens=2, ignore_eos=True)
        assert eventually(lambda: server.http.get("/health").status_code == 503)
        assert server.http.get("/ready").status_code == 503
        proceed.set()
        assert answer.result()["usage"]["completion_tokens"] == 2
        assert server.http.get("/health").status_code == 200


def test_more_than_fits_is_told_to_come_back(tmp_path: Path) -> None:
    """BB-061: all requests are kept until memory is gone, and clients time out one after another."""
    with serving(tiny_model(tmp_path, "plain", context=4096), lanes=2, max_waiting=6) as server:
        fields: Json = {"prompt": "hello world, " * 80, "temperature": 0, "max_tokens": 120, "ignore_eos": True}
        alone = server.complete(**fields)["choices"]
        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda _: server.post(TEXT_PATH, fields), range(100)))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses[200] >= 8 and statuses[429] > 0 and statuses[200] + statuses[429] == 100
        for answer in answers:
            if answer.status_code == 200:
                assert answer.json()["choices"] == alone
            else:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert server.is_idle()
        assert server.complete(**fields)["choices"] == alone


def streamed(server: RealServer, begun: threading.Semaphore, fields: Json) -> str:
    pieces: list[str] = []
    body = {"model": server.model.id, "messages": HI, "stream": True, **fields}
    with server.http.stream("POST", CHAT_PATH, json=body) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_text():
            if not pieces:
                begun.release()
            pieces.append(piece)
    return "".join(pieces)


def contents(text: str) -> str:
    chunks = [orjson.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", []))


@pytest.mark.parametrize("drain", [30.0, 0.0])
def test_streams_that_run_at_the_end_are_whole_or_say_why_not(tmp_path: Path, drain: float) -> None:
    """BB-063: a stop waits for ever, or cuts all streams at once; 64 of a real engine, on few lanes."""
    options = ServingOptions(drain_seconds=drain)
    begun = threading.Semaphore(0)
    with serving(tiny_model(tmp_path, "plain"), options, lanes=4) as server:
        fields: Json = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}
        alone = server.chat(**fields)["choices"][0]["message"]["content"]
        with ThreadPoolExecutor(64) as pool:
            streams = [pool.submit(streamed, server, begun, fields) for _ in range(64)]
            for _ in streams:
                assert begun.acquire(timeout=30)
            server.live.request_exit()
            statuses = late_answers(server)
            texts = [stream.result() for stream in streams]
        server.live.thread.join(timeout=30)
        assert not server.live.thread.is_alive() and server.is_idle()
    assert statuses <= {503, 0}
    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    if drain:
        assert {contents(text) for text in texts} == {alone}
        return
    cut = [text for text in texts if contents(text) != alone]
    assert cut and all(orjson.loads(text.split("\n\n")[-3].removeprefix("data: "))["error"] for text in cut)


def late_answers(server: RealServer) -> set[int]:
    """The statuses of requests after the stop has begun; 0 where there is no server any more."""
    statuses: set[int] = set()

    def ask() -> bool:
        try:
            answer = httpx.post(
                f"{server.live.url}{TEXT_PATH}", json={"model": "plain", "prompt": "x", "max_tokens": 1}
            )
        except httpx.TransportError:
            statuses.add(0)
            return True
        if answer.status_code != 200:  # the first may come before the stop
            statuses.add(answer.status_code)
        return answer.status_code != 200

    assert eventually(ask)
    ask()
    return statuses
