"""The worker process is started when needed, replaced when it dies, and leaves nothing behind."""

import gc
import subprocess
import threading

import pytest

from engine.errors import EngineFaultError
from engine.text.sandbox import worker_process
from engine.text.sandbox.template_process import TemplateProcess
from engine.text.sandbox.worker_process import WorkerProcess


def first_worker(renderer: TemplateProcess) -> WorkerProcess:
    """The one that is taken first."""
    worker = renderer._free.get()
    renderer._free.put(worker)
    return worker


def test_a_dead_worker_is_replaced() -> None:
    renderer = TemplateProcess()
    assert renderer.render("{{ x }}", {"x": 1}) == "1"
    first = first_worker(renderer)._process
    assert first is not None
    first.kill()
    first.wait()
    assert renderer.render("{{ x }}", {"x": 2}) == "2"
    assert first_worker(renderer)._process is not first


def test_the_worker_ends_with_its_owner() -> None:
    renderer = TemplateProcess()
    renderer.compile("x")
    process = first_worker(renderer)._process
    assert process is not None
    del renderer
    gc.collect()
    assert process.poll() is not None


def test_threads_take_turns() -> None:
    renderer = TemplateProcess()
    results: dict[int, str] = {}

    def work(number: int) -> None:
        results[number] = renderer.render("{{ x }}" * 50, {"x": number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) * 50 for number in range(8)}


def test_a_costly_rendering_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug R6: with one worker every chat waited for the costliest."""
    begun, enough = threading.Event(), threading.Event()
    exchange = worker_process._exchange

    def exchanged(process: subprocess.Popen[bytes], request: bytes, wall_seconds: float) -> bytes:
        if b"costly" in request:
            begun.set()
            assert enough.wait(60)
        return exchange(process, request, wall_seconds)

    monkeypatch.setattr(worker_process, "_exchange", exchanged)
    renderer = TemplateProcess()
    costly = threading.Thread(target=renderer.render, args=("costly", {}))
    cheap = threading.Thread(target=renderer.render, args=("cheap", {}))
    costly.start()
    assert begun.wait(60)
    cheap.start()
    cheap.join(60)
    was_held_up = cheap.is_alive()
    enough.set()
    costly.join()
    assert not was_held_up


def test_large_texts_pass_whole() -> None:
    content = "é\n\u2028\"'\\" * 100_000
    assert TemplateProcess().render("{{ x }}", {"x": content}) == content


def test_a_worker_that_cannot_start_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(EngineFaultError, match="cannot be started"):
        TemplateProcess().compile("x")
