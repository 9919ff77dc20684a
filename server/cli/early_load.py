"""A load that begins before the application is there to ask for it."""

import threading
from concurrent.futures import Future

from server.served import ServedModel
from server.serving import Load, Progress


class EarlyLoad:
    """Runs a load in a thread of its own, from now on; whoever calls it as a Load waits for the outcome."""

    def __init__(self, load: Load) -> None:
        self._listener: Progress = lambda stage, fraction: None
        self._outcome: Future[ServedModel] = Future()
        # A daemon: a load that is still running must not hold up the exit.
        threading.Thread(target=self._run, args=(load,), name="octavo-early-load", daemon=True).start()

    def __call__(self, progress: Progress) -> ServedModel:
        """The model; raises what ended the load. From here on `progress` hears of its stages."""
        self._listener = progress
        return self._outcome.result()

    def _run(self, load: Load) -> None:
        try:
            self._outcome.set_result(load(lambda stage, fraction: self._listener(stage, fraction)))
        except BaseException as error:
            self._outcome.set_exception(error)
