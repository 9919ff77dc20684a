"""The one model that a server answers with, through its life, and the requests that are open on it.

A model is loading, then ready or failed, then draining. A client can cancel an open request by its id.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

from engine.errors import EngineNotReadyError, RequestError
from server.errors import AnswerCancelledError, ClientGoneError, UnknownModelError
from server.logs import RequestLog, RequestObserver
from server.served import ServedModel
from server.settings import ServingOptions

logger = logging.getLogger("octavo.server")


class OpenRequest(ABC):
    """One admitted request: what it is called, whose it is, and how it is ended. Every way out must close it."""

    def __init__(self, log: RequestLog, caller: str) -> None:
        """log: carries both names of the request, `id` and `request_id`. caller: a hash of the API key, or empty."""
        self.log = log
        self.caller = caller
        self.is_cancelled = False
        self.on_close: list[Callable[[], None]] = []
        self._is_closed = False

    @abstractmethod
    def abort(self) -> None:
        """Give the lanes back; does nothing where the engine has none of them any more."""

    def cancel(self) -> None:
        """End the request on somebody else's word; whoever waits for the answer gets an AnswerCancelledError."""
        self.is_cancelled = True
        self.abort()

    def close(self) -> None:
        """Give the lanes back, whatever the reason, and write the log line. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self.abort()
        self.log.write()
        for callback in self.on_close:
            callback()

    def note_failure(self, error: Exception) -> None:
        """Take down why there is no answer; our own faults go to the log in full."""
        match error:
            case EngineNotReadyError():
                self.log.end = "stopped"
            case AnswerCancelledError():
                self.log.end = "cancelled"
            case ClientGoneError():
                self.log.end = "disconnected"
            case RequestError():  # which the engine has logged in one line
                self.log.end = "error"
            case _:
                self.log.end = "error"
                logger.error("%s failed", self.log.id, exc_info=error)


class OpenRequests:
    """Whoever adds a request removes it when its answer ends, whatever ends it."""

    def __init__(self) -> None:
        self._open: set[OpenRequest] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: OpenRequest) -> None:
        self._open.add(request)

    def remove(self, request: OpenRequest) -> None:
        """Forget a request; it need not be there any more."""
        self._open.discard(request)

    def cancel(self, name: str, caller: str) -> list[str]:
        """End the caller's requests that go by this name, either of the two; return their ids."""
        found = [one for one in self._open if one.caller == caller and name in (one.log.id, one.log.request_id)]
        for request in found:
            request.cancel()
        return [request.log.id for request in found]


Progress = Callable[[str, float], None]  # (stage, fraction of the stage from 0 to 1)
Load = Callable[[Progress], ServedModel]


class Phase(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"


class Serving:
    """Loads the model in a thread of its own, and hands it to the routes when it is ready."""

    def __init__(self, load: Load, options: ServingOptions | None = None) -> None:
        self.options = options or ServingOptions()
        self.phase = Phase.LOADING
        self.progress = 0.0
        self.open_requests = OpenRequests()
        self.memory_bandwidth: float | None = None  # of this machine, in bytes a second; None: not measured
        self.request_observer: RequestObserver | None = None
        self._on_ready: list[Callable[[ServedModel], None]] = []
        self._load = load
        self._model: ServedModel | None = None
        self._loaded: asyncio.Future[ServedModel] | None = None

    def start(self) -> None:
        """Begin to load; needs the running event loop. Does nothing if begun already."""
        if self._loaded is None:
            self._loaded = asyncio.get_running_loop().create_future()
            # A daemon: a load that is still running must not hold up the exit.
            threading.Thread(target=self._run_load, args=(self._loaded,), name="octavo-load", daemon=True).start()

    def _run_load(self, loaded: asyncio.Future[ServedModel]) -> None:
        try:
            outcome: ServedModel | BaseException = self._load(self._note_progress)
        except BaseException as error:
            outcome = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loaded.get_loop().call_soon_threadsafe(self._settle, loaded, outcome)

    def _note_progress(self, stage: str, fraction: float) -> None:
        self.progress = fraction

    def _settle(self, loaded: asyncio.Future[ServedModel], outcome: ServedModel | BaseException) -> None:
        if self.phase is not Phase.LOADING:
            return
        if isinstance(outcome, BaseException):
            self.phase = Phase.FAILED
            loaded.set_exception(outcome)
        else:
            outcome.service.start()
            self._model, self.phase, self.progress = outcome, Phase.READY, 1.0
            for callback in self._on_ready:
                callback(outcome)
            loaded.set_result(outcome)

    async def wait_loaded(self) -> ServedModel:
        """The model once it is ready, or the error that ended the load; never returns if stopped before."""
        self.start()
        assert self._loaded is not None
        return await asyncio.shield(self._loaded)

    def when_ready(self, callback: Callable[[ServedModel], None]) -> None:
        """Call back with the model as soon as it serves: now, if it does."""
        self._on_ready.append(callback)
        if self._model is not None:
            callback(self._model)

    async def stop(self) -> None:
        """Refuse new requests, let running ones finish within the drain time, end the rest."""
        if self.phase is Phase.DRAINING:
            return
        self.phase = Phase.DRAINING
        if self._model is not None:
            await self._model.service.stop(self.options.drain_seconds)

    @property
    def draining(self) -> bool:
        return self.phase is Phase.DRAINING

    @property
    def alive(self) -> bool:
        """Whether there is an engine that answers, or may be one when the load is done."""
        return self.phase is not Phase.FAILED and (self._model is None or self._model.service.status().alive)

    @property
    def model(self) -> ServedModel:
        """The loaded model; raises EngineNotReadyError before and after."""
        if self.phase is Phase.DRAINING:
            raise EngineNotReadyError("The server is stopping and takes no new requests.")
        if self._model is None:
            raise EngineNotReadyError("The model is still loading; try again in a moment (GET /ready shows progress).")
        return self._model

    def model_named(self, name: str) -> ServedModel:
        """The loaded model if it goes by this name; raises UnknownModelError otherwise."""
        model = self.model
        names = (model.id, *model.aliases)
        if not self.options.any_model and name not in names:
            raise UnknownModelError(name, names)
        return model
