"""What the engine knows of one request while it waits and runs: token ids and places, no text.

A sequence consists of parts. Each part has one owner, which alone writes it; the others read it.
"""

from dataclasses import dataclass, field

from engine.api.request import Request, Timings, TokenLogprob
from engine.run.embedding import Pooler
from engine.run.nodes import Held
from engine.sampling.token_chooser import TokenChooser


@dataclass(eq=False, slots=True)
class Standing:
    """How the scheduler treats a sequence."""

    rank: tuple[int, int, int] | None = None  # how urgent it is, the lower the more; set when it first waits
    preemptions: int = 0  # how often it had to give its memory to others
    alone_until: int = 0  # after a fault in a step of several: computed tokens up to which it has steps of its own


@dataclass(eq=False, slots=True)
class Course:
    """Times and counts, kept by the loop. Times are seconds of the loop's clock."""

    submitted_at: float = 0.0
    started_at: float | None = None  # when its first rows went into a step
    first_token_at: float | None = None
    decode_steps: int = 0
    decode_lanes: int = 0  # the sum of the sequences in each of its decode steps, itself among them
    drafted: int = 0  # guessed tokens that were tried
    accepted: int = 0  # guessed tokens that were right

    def timings(self, now: float) -> Timings:
        """Split the time from submission until `now` into stages."""
        started = now if self.started_at is None else self.started_at
        first_token = now if self.first_token_at is None else self.first_token_at
        return Timings(
            queue_seconds=started - self.submitted_at,
            prefill_seconds=first_token - started,
            decode_seconds=now - first_token,
            mean_lanes=self.decode_lanes / self.decode_steps if self.decode_steps else 1.0,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
        )


@dataclass(eq=False, slots=True)
class TokenSequence:
    """One request's state. Two sequences are equal only if they are the same object."""

    request: Request
    max_new_tokens: int
    chooser: TokenChooser
    # The loop's:
    tokens: list[int] = field(init=False)  # the prompt, then what was generated
    prompt_logprobs: list[TokenLogprob | None] = field(init=False)  # where asked for
    pooler: Pooler | None = field(init=False)  # where the prompt's embedding is needed
    course: Course = field(default_factory=Course)
    # The memory's:
    held: Held = field(default_factory=Held)
    # The scheduler's:
    standing: Standing = field(default_factory=Standing)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt.tokens)
        self.begin_prompt()

    def begin_prompt(self) -> None:
        """Forget what was made of the prompt: its first token is computed now, maybe once more."""
        self.prompt_logprobs = [None] if self.scores_prompt else []
        pooling = self.request.pooling
        self.pooler = None if pooling is None else Pooler(pooling, self.prompt_tokens)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt.tokens)

    @property
    def new_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def computed(self) -> int:
        """Leading tokens whose keys and values are in the blocks."""
        return self.held.computed

    @property
    def pending(self) -> int:
        """Tokens still to be fed: 1 while decoding, more during prefill."""
        return len(self.tokens) - self.held.computed

    @property
    def scores_prompt(self) -> bool:
        """Whether logits of every token of the prompt are needed."""
        return self.request.prompt_logprobs is not None

    @property
    def is_scored(self) -> bool:
        """Whether the next rows are of a prompt that is scored; a sequence with an answer was scored before."""
        return self.scores_prompt and self.new_tokens == 0

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether each token of the prompt must be computed, even if the prefix cache has it."""
        return self.new_tokens == 0 and (self.scores_prompt or self.pooler is not None)

    @property
    def is_suspect(self) -> bool:
        """Whether this sequence may have caused the fault of a step that it was part of."""
        return self.held.computed < self.standing.alone_until

    @property
    def deadline(self) -> float | None:
        """When the answer must end, by the clock of `course`."""
        seconds = self.request.max_seconds
        return None if seconds is None else self.course.submitted_at + seconds

    @property
    def worst_case_tokens(self) -> int:
        """Positions that the sequence can fill at most; the last new token is never fed."""
        return self.prompt_tokens + max(self.max_new_tokens, 1) - 1

    def shares_cache_with(self, other: "TokenSequence") -> bool:
        """Whether both belong to one division of the prefix cache."""
        mine, theirs = self.request, other.request
        return (mine.caller, mine.cache_salt) == (theirs.caller, theirs.cache_salt)
