"""What the engine tells of itself while it runs: light to import, for those who only watch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One request that holds a lane."""

    id: str
    prompt_tokens: int
    computed_tokens: int  # of prompt and answer, that have been through the model
    generated_tokens: int
    cached_tokens: int = 0  # of the prompt, that it did not have to compute
    preemptions: int = 0  # how often it gave its memory to others
    caller: bytes = b""  # whose request it is


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine at one moment."""

    lanes: int
    running: tuple[LaneStatus, ...]
    waiting: int  # requests without a lane
    blocks: int  # of keys and values
    free_blocks: int  # those that the prefix cache would give up for a sequence are among them
    cached_blocks: int = 0  # that the prefix cache holds and no sequence uses
    looked_up_tokens: int = 0  # of prompts, for which the prefix cache was asked since the start
    hit_tokens: int = 0  # those of them that it had
    evicted_blocks: int = 0  # that it has dropped since the start to make room
    estimated_wait: float = 0.0  # seconds until a request that came now would get a lane
    itl_target_seconds: float | None = None  # of a step in which answers run beside prompts; None: not measured yet
    alive: bool = True  # False: its thread has ended by a fault, or hangs, and nothing is answered any more


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    prefill_rows: int
    decode_rows: int  # one for each sequence that decodes
    sequences: int
    seconds: float
    draft_rows: int = 0  # of tokens that were guessed
    preempted: int = 0  # sequences that gave their memory to others
    accepted_drafts: int = 0  # rows whose guess was right
