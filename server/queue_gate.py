"""Refuses what the queue has no room for before its body is read: a crowd is told to come later within a moment."""

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import OctavoError
from server.endpoints import PREFIX
from server.errors import error_response
from server.serving import Serving

QUEUEING = frozenset({"/chat/completions", "/completions", "/responses", "/messages", "/embeddings"})  # POST


class Place:
    """What a request holds between the gate and the engine's queue, or its refusal."""

    def __init__(self, gate: "QueueGate") -> None:
        self._gate = gate
        self._is_held = True
        gate.planned += 1

    def leave(self) -> None:
        """The request is in the queue now, or will never be; may be called again."""
        self._gate.planned -= self._is_held
        self._is_held = False


class QueueGate:
    """ASGI middleware. Counts the requests that are still being read and planned as if they were queued."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self.app = app
        self.planned = 0
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _will_queue(scope):
            await self.app(scope, receive, send)
            return
        try:
            self._serving.model.service.check_room(self.planned + 1)
        except OctavoError as error:
            await error_response(error)(scope, receive, send)
            return
        place = Place(self)
        try:
            await self.app({**scope, "octavo.place": place}, receive, send)
        finally:
            place.leave()


def _will_queue(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"].removeprefix(PREFIX) in QUEUEING
