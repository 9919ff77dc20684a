"""Settings of the engine, frozen; a bad one fails at start, naming the key and the value."""

from dataclasses import dataclass
from pathlib import Path

SPECULATIONS = ("auto", "ngram", "mtp", "off")
DRAFTING = ("auto", "mtp")  # those that run the model's own draft head


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How much the engine takes on at once, and how it shares its time."""

    lanes: int = 8  # sequences that run at once
    max_waiting: int = 256  # requests beyond those that have a lane
    priorities_across_callers: bool = False  # else a priority counts only among the requests of one caller
    itl_target_seconds: float | None = None  # of a step, beside long prompts; None: as measured, see ChunkBudget.target
    prefill_rows: int = 512  # prompt tokens a step at most
    prefill_interval: int = 4  # steps in which a waiting prompt is granted a chunk, whatever the target leaves
    knee_rows: int = 16  # of a step, up to which reading the weights takes the time, not the rows
    speculation: str = "auto"  # how next tokens are guessed: SPECULATIONS
    draft_max: int = 7  # guessed tokens of a sequence in a step
    cache_folder: Path | None = None  # where the prefix cache survives a restart; None: nowhere
    cache_identity: str = ""  # what it belongs to: the model file, the type of keys and values, the version

    def __post_init__(self) -> None:
        for key in ("lanes", "max_waiting", "prefill_rows", "prefill_interval", "knee_rows", "draft_max"):
            value, least = getattr(self, key), 0 if key == "max_waiting" else 1
            if value < least:
                raise ValueError(f"{key} must be at least {least}, not {value}.")
        if self.speculation not in SPECULATIONS:
            raise ValueError(f"speculation must be one of {', '.join(SPECULATIONS)}, not {self.speculation!r}.")
        if self.itl_target_seconds is not None and not self.itl_target_seconds > 0:
            raise ValueError(f"itl_target_seconds must be above 0, not {self.itl_target_seconds}.")
