"""What the engine tells of itself while it runs: light to import, for those who only watch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One request that holds a lane."""

    id: str
    prompt_tokens: int
    computed_tokens: int  # of prompt and answer, that have been through the model
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine at one moment."""

    lanes: int
    running: tuple[LaneStatus, ...]
    waiting: int  # requests without a lane
    blocks: int  # of keys and values
    free_blocks: int
    alive: bool = True  # False: its thread has ended by a fault, or hangs, and nothing is answered any more


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    prefill_rows: int
    decode_rows: int
    sequences: int
    seconds: float
