"""The server's side of the template worker: what its replies mean."""

import json
import queue
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from engine.errors import ModelFileError, TemplateError
from engine.text.sandbox.worker_process import WorkerBrokenError, WorkerProcess

WORKERS = 2
WORKER = Path(__file__).with_name("template_worker.py")


class RefusedByTemplateError(TemplateError):
    """The template's own raise_exception, in its own words."""


class BrokenTemplateError(TemplateError):
    """The template cannot be compiled, or fails on these messages."""


class TemplateProcess:
    """Worker processes for chat templates. A rendering takes about a millisecond, and at most a second.

    A costly rendering holds up only those that find every worker busy. A worker is started when the others are busy.
    """

    def __init__(self) -> None:
        self._free: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for _ in range(WORKERS):
            self._free.put(WorkerProcess(WORKER, "renders chat templates"))

    def compile(self, source: str, what: str = "The model's chat template") -> None:
        """Raises ModelFileError, which calls it `what`, for a template that cannot be compiled."""
        kind, words = self._ask(source, None)
        if kind != "text":
            raise ModelFileError(f"{what} cannot be compiled: {words.rstrip('.')}; use another file.")

    def render(self, source: str, variables: Mapping[str, object]) -> str:
        """Raises RefusedByTemplateError, BrokenTemplateError, or TemplateError where a limit is passed."""
        kind, words = self._ask(source, variables)
        if kind == "refused":
            raise RefusedByTemplateError(words or "The chat template refused these messages.")
        if kind == "failed":
            raise BrokenTemplateError(f"The model's chat template failed on these messages: {words.rstrip('.')}.")
        if kind == "limit":
            raise TemplateError(f"The model's chat template cannot be rendered with these messages: {words}.")
        return words

    def variables(self, source: str) -> frozenset[str] | None:
        """The names that a template takes from its caller; None where that cannot be told."""
        kind, words = self._ask(source, None, names=True)
        return frozenset(json.loads(words)) if kind == "text" else None

    def _ask(self, source: str, variables: Mapping[str, object] | None, *, names: bool = False) -> tuple[str, str]:
        """Kind of reply (text, refused, failed, limit) and its words."""
        worker = self._free.get()
        try:
            kind, words = worker.ask({"source": source, "variables": variables, "names": names})
        except WorkerBrokenError:
            return "limit", "it takes too much time or memory"
        finally:
            self._free.put(worker)
        return kind, words


@cache
def shared_process() -> TemplateProcess:
    """The workers of this server."""
    return TemplateProcess()
