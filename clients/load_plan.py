"""What a load consists of: how many requests, how many at once, of which lengths, and with which prompts."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

MAX_REQUESTS = 100_000
MAX_CONCURRENCY = 1024
MAX_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A closed loop: each of `concurrency` callers sends its next request when its last one is answered."""

    model: str
    requests: int = 32
    concurrency: int = 8
    prompt_tokens: int = 128
    output_tokens: int = 64
    shared_prefix: int = 0  # tokens that all prompts begin with
    cold: bool = False  # the first token differs in each request, so that no prefix is shared after all
    vocabulary: int = 1000  # prompts are random ids below this, different in each request
    seed: int = 0
    seconds: float = 600.0  # what is unfinished then is given up

    def __post_init__(self) -> None:
        _require("requests", self.requests, 1, MAX_REQUESTS)
        _require("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _require("prompt_tokens", self.prompt_tokens, 1, 1_000_000)
        _require("output_tokens", self.output_tokens, 1, 1_000_000)
        _require("shared_prefix", self.shared_prefix, 0, self.prompt_tokens)
        _require("vocabulary", self.vocabulary, 2, 2**31)
        _require("seconds", self.seconds, 0.001, MAX_SECONDS)

    def prompts(self) -> Iterator[list[int]]:
        draw = random.Random(self.seed)
        offset = draw.randrange(self.vocabulary)
        prefix = self._tokens(draw, self.shared_prefix)
        for number in range(self.requests):
            prompt = prefix + self._tokens(draw, self.prompt_tokens - self.shared_prefix)
            if self.cold:
                prompt[0] = 1 + (offset + number) % (self.vocabulary - 1)
            yield prompt

    def _tokens(self, draw: random.Random, count: int) -> list[int]:
        return [draw.randrange(1, self.vocabulary) for _ in range(count)]


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {value}.")
