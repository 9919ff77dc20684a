"""The server's side of the compile worker: tells what is wrong with a grammar, at no risk to the server."""

import signal
from pathlib import Path

from engine.errors import GrammarTimeoutError
from engine.text.sandbox.compile_worker import PROCESSOR_SECONDS
from engine.text.sandbox.worker_process import WorkerBrokenError, WorkerProcess

WORKER = Path(__file__).with_name("compile_worker.py")
TOO_COMPLEX = "it is too complex: it takes too much memory to compile"
_WALL_SECONDS = 4 * PROCESSOR_SECONDS  # for a machine that is very busy
# How a worker ends that took too long, or that somebody stopped: no fault that was found in the grammar.
_STOPPED = {-signal.SIGPROF, -signal.SIGKILL, -signal.SIGTERM}


class CompileProcess:
    """One worker process for one vocabulary. Most grammars take a few milliseconds."""

    def __init__(self, vocabulary: dict[str, object]) -> None:
        self._worker = WorkerProcess(WORKER, "compiles grammars", vocabulary, wall_seconds=_WALL_SECONDS)

    def complaint(self, grammar: str) -> str:
        """What is wrong with the grammar; empty if nothing is, so that it may be compiled anywhere.

        Raises GrammarTimeoutError where that did not show in time, which is no verdict on the grammar.
        """
        try:
            kind, words = self._worker.ask(grammar)
        except WorkerBrokenError as error:
            if error.status in _STOPPED:
                raise GrammarTimeoutError(PROCESSOR_SECONDS) from None
            return TOO_COMPLEX
        return "" if kind == "good" else str(words)
