"""The worker process is started when needed, replaced when it dies, and leaves nothing behind."""

import gc
import threading

import pytest

from engine.errors import EngineFaultError
from engine.sandbox.template_process import TemplateProcess


def test_a_dead_worker_is_replaced() -> None:
    renderer = TemplateProcess()
    assert renderer.render("{{ x }}", {"x": 1}) == "1"
    first = renderer._worker._process
    assert first is not None
    first.kill()
    first.wait()
    assert renderer.render("{{ x }}", {"x": 2}) == "2"
    assert renderer._worker._process is not first


def test_the_worker_ends_with_its_owner() -> None:
    renderer = TemplateProcess()
    renderer.compile("x")
    process = renderer._worker._process
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


def test_large_texts_pass_whole() -> None:
    content = "é\n\u2028\"'\\" * 100_000
    assert TemplateProcess().render("{{ x }}", {"x": content}) == content


def test_a_worker_that_cannot_start_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(EngineFaultError, match="cannot be started"):
        TemplateProcess().compile("x")
