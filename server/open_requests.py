"""The requests that are being answered now, so that a client can cancel one by its id."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRequest:
    """One admitted request: what it is called, whose it is, and how it is ended."""

    id: str  # of the answer: chatcmpl-..., cmpl-..., msg_..., resp_...
    request_id: str  # of the exchange: the X-Request-Id header
    caller: str  # scope["octavo.caller"]: a hash of the API key, empty without one
    cancel: Callable[[], None]  # ends the answer; called in the event loop's thread


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
        found = [one for one in self._open if one.caller == caller and name in (one.id, one.request_id)]
        for request in found:
            request.cancel()
        return [request.id for request in found]
