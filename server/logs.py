"""One log line per request, and where log lines go."""

import logging
import time
from dataclasses import dataclass, field

access = logging.getLogger("octavo.access")


@dataclass(slots=True, kw_only=True)
class RequestLog:
    """The facts of one request's line: figures only, never text of the prompt or the answer."""

    id: str
    request_id: str
    model: str
    prompt_tokens: int
    generated_tokens: int = 0
    end: str = "disconnected"  # the state if nobody says otherwise before the line is written
    started: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    last_token: float | None = None

    def note_tokens(self, count: int) -> None:
        if count:
            self.last_token = time.monotonic()
            self.first_token = self.first_token or self.last_token
            self.generated_tokens += count

    def write(self) -> None:
        access.info(
            "%s request=%s model=%s prompt=%d generated=%d ttft=%s rate=%s end=%s",
            self.id,
            self.request_id,
            self.model,
            self.prompt_tokens,
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
