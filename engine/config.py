"""Settings of the engine, frozen; a bad one fails at start, naming the key and the value."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How much the engine takes on at once."""

    lanes: int = 8  # sequences that run at once
    max_waiting: int = 256  # requests beyond those that have a lane
    prefill_rows_alone: int = 512  # prompt tokens a step while nothing decodes
    prefill_rows_shared: int = 64  # prompt tokens a step beside decoding sequences, whose pace they slow

    def __post_init__(self) -> None:
        for key in fields(self):
            value, least = getattr(self, key.name), 0 if key.name == "max_waiting" else 1
            if value < least:
                raise ValueError(f"{key.name} must be at least {least}, not {value}.")
