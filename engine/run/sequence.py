"""What the engine knows of one request while it waits and runs: token ids and places, no text."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.request import CacheReport, Request, Timings, TokenLogprob
from engine.run.pooling import Pooler
from engine.sampling.token_chooser import TokenChooser
from engine.speculation.drafters import PredictionFollower


@dataclass(eq=False, slots=True)
class TokenSequence:
    """One request's state. Two sequences are equal only if they are the same object."""

    request: Request
    max_new_tokens: int
    chooser: TokenChooser
    submitted_at: float = 0.0  # seconds of a monotonic clock; these three are filled by the loop
    started_at: float | None = None  # its first rows went into a step
    first_token_at: float | None = None
    tokens: list[int] = field(init=False)  # the prompt, then what was generated
    computed: int = 0  # leading tokens whose keys and values are in the blocks; advanced by the scheduler
    tables: tuple[list[int], ...] = ()  # its blocks in each group of layers; filled by the memory, as these three:
    state_slot: int = 0  # where its recurrent state is
    cached_tokens: int = 0  # of the prompt, that were in the prefix cache when it first got a lane
    cache_report: CacheReport | None = None  # if asked for
    rank: tuple[int, int, int] | None = None  # how urgent it is, the lower the more; filled by the waiting queue
    preemptions: int = 0  # counted by the scheduler
    alone_until: int = 0  # after a fault in a step of several: until so many tokens are computed, it is alone in a step
    prompt_logprobs: list[TokenLogprob | None] = field(init=False)  # if asked for; filled by the loop, as these two:
    pooler: Pooler | None = field(init=False)  # if the prompt's embedding is wanted
    decode_steps: int = 0
    decode_lanes: int = 0  # sequences of all its decode steps, itself too
    prediction: PredictionFollower | None = field(init=False)  # if its request has one
    drafted: int = 0  # guessed tokens that were tried; counted by the loop, as is:
    accepted: int = 0  # those of them that were right

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt.tokens)
        predicted = self.request.prediction
        self.prediction = PredictionFollower(predicted, self.prompt_tokens) if predicted else None
        self._begin_prompt()

    def _begin_prompt(self) -> None:
        self.prompt_logprobs = [None] if self.scores_prompt else []
        pooling = self.request.pooling
        self.pooler = None if pooling is None else Pooler(pooling, self.prompt_tokens)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def scores_prompt(self) -> bool:
        """Whether logits of every token of the prompt are wanted."""
        return self.request.prompt_logprobs is not None

    @property
    def is_scored(self) -> bool:
        """Whether the rows that come are of a prompt that is scored; one that has an answer already was scored."""
        return self.scores_prompt and self.new_tokens == 0

    @property
    def is_suspect(self) -> bool:
        """Whether the fault in a step that it was part of may have been its own."""
        return self.computed < self.alone_until

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether each token of the prompt has to be computed, whatever is known of it."""
        return self.new_tokens == 0 and (self.scores_prompt or self.pooler is not None)

    @property
    def embedding(self) -> NDArray[np.float32] | None:
        """The prompt's embedding, once it is computed."""
        return None if self.pooler is None or self.pending else self.pooler.vector()

    @property
    def deadline(self) -> float | None:
        """When it has to end, on the clock of submitted_at."""
        seconds = self.request.max_seconds
        return None if seconds is None else self.submitted_at + seconds

    @property
    def new_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def pending(self) -> int:
        """Tokens still to be fed: 1 while decoding, more during prefill."""
        return len(self.tokens) - self.computed

    @property
    def predicted_right(self) -> int:
        """How many tokens of the request's prediction have come where they were expected."""
        if self.prediction is None:
            return 0
        self.prediction.follow(self.tokens)
        return self.prediction.accepted

    @property
    def worst_case_tokens(self) -> int:
        """Positions it can ever fill; the last new token is never fed."""
        return self.prompt_tokens + max(self.max_new_tokens, 1) - 1

    def shares_cache_with(self, other: "TokenSequence") -> bool:
        """Whether both belong to one division of the prefix cache."""
        return self._division == other._division

    @property
    def _division(self) -> tuple[bytes, str]:
        return self.request.caller, self.request.cache_salt

    def restart(self) -> None:
        """Begin again from the tokens, which stay, after all that was computed of them was given up."""
        self.computed = 0
        if self.new_tokens == 0:
            self._begin_prompt()

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
