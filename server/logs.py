"""One log line per request, and where log lines go."""

import logging
import time
from dataclasses import dataclass, field
from typing import Protocol

from engine.api.request import FinishEvent

access = logging.getLogger("octavo.access")


class RequestObserver(Protocol):
    """Whoever wants to hear of requests while they run: the metrics."""

    def note_tokens(self, count: int, seconds: float, *, are_first: bool) -> None:
        """Tokens came, `seconds` after those before them, or after the request where they are the first."""

    def note_end(self, log: "RequestLog") -> None:
        """The request has ended, and its log is complete."""


@dataclass(slots=True, kw_only=True)
class RequestLog:
    """The facts of one request's line: figures only, never text of the prompt or the answer."""

    id: str
    request_id: str
    model: str
    prompt_tokens: int
    path: str = ""  # of the request
    observer: RequestObserver | None = None
    choices: int = 1
    cached_tokens: int = 0
    generated_tokens: int = 0
    queue_seconds: float | None = None
    end: str = "disconnected"  # the state if nobody says otherwise before the line is written
    started: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    last_token: float | None = None

    def note_tokens(self, count: int) -> None:
        if not count:
            return
        now = time.monotonic()
        if self.observer is not None:
            before = self.last_token or self.started
            self.observer.note_tokens(count, now - before, are_first=self.first_token is None)
        self.last_token = now
        self.first_token = self.first_token or now
        self.generated_tokens += count

    def note_finish(self, reason: str, event: FinishEvent, *, counts_prompt: bool = True) -> None:
        """One choice is complete; a line has room for the end of one, and tells of the last.

        A prompt with several answers counts once: the others find in the cache what the first has computed.
        """
        self.end = reason
        self.cached_tokens += event.cached_tokens * counts_prompt
        self.queue_seconds = event.timings.queue_seconds

    def write(self) -> None:
        if self.observer is not None:
            self.observer.note_end(self)
        access.info(
            "%s request=%s model=%s choices=%d prompt=%d cached=%d generated=%d ttft=%s rate=%s end=%s",
            self.id,
            self.request_id,
            self.model,
            self.choices,
            self.prompt_tokens,
            self.cached_tokens,
            self.generated_tokens,
            "-" if self.first_token is None else f"{self.first_token - self.started:.3f}s",
            self._rate(),
            self.end,
        )

    def _rate(self) -> str:
        if self.first_token is None or self.last_token is None or self.last_token <= self.first_token:
            return "-"
        return f"{(self.generated_tokens - 1) / (self.last_token - self.first_token):.1f}tok/s"


def configure_logging() -> None:
    """Send our lines, and warnings of the libraries, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("octavo").setLevel(logging.INFO)
