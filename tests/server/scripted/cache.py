"""A prefix cache for the scripted engine: it holds every prompt that was asked, for the same caller and salt alone."""

from collections import defaultdict
from collections.abc import Sequence

from engine.api.prompt import Prompt
from engine.api.request import CacheMiss, CacheReport, Request


class ScriptedCache:
    """Tokens, and nothing computed of them."""

    def __init__(self) -> None:
        self._known: defaultdict[tuple[bytes, str], list[Prompt]] = defaultdict(list)

    def take(self, request: Request) -> CacheReport:
        """What the cache holds of a prompt; from then on it holds all of it."""
        known = self._known[request.caller, request.cache_salt]
        matched = max((common(request.prompt, one) for one in known), default=0)
        known.append(request.prompt)
        return CacheReport(min(matched, len(request.prompt) - 1), matched, _miss(matched, len(request.prompt)))


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def _miss(matched: int, tokens: int) -> CacheMiss:
    if matched == 0:
        return CacheMiss.COLD
    return CacheMiss.WHOLE if matched == tokens else CacheMiss.DIFFERS
