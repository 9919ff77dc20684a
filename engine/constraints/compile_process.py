"""The server's side of the compile worker: tells what is wrong with a grammar, at no risk to the server."""

from pathlib import Path

from engine.worker_process import WorkerBrokenError, WorkerProcess

WORKER = Path(__file__).with_name("compile_worker.py")
TOO_COMPLEX = "it is too complex: it takes too much time or memory to compile"


class CompileProcess:
    """One worker process for one vocabulary. Most grammars take a few milliseconds."""

    def __init__(self, vocabulary: dict[str, object]) -> None:
        self._worker = WorkerProcess(WORKER, "compiles grammars", vocabulary)

    def complaint(self, grammar: str) -> str:
        """What is wrong with the grammar; empty if nothing is, so that it may be compiled anywhere."""
        try:
            kind, words = self._worker.ask(grammar)
        except WorkerBrokenError:
            return TOO_COMPLEX
        return "" if kind == "good" else str(words)
