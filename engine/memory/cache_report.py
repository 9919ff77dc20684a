"""Says how much of a prompt the prefix cache knew, and why it did not give more."""

from engine.api.request import CacheMiss, CacheReport
from engine.memory.prefix_cache import PrefixCache
from engine.run.nodes import Node, block_digest


def explain(cache: PrefixCache, root: Node, prompt: list[int], cached: int, block_tokens: int) -> CacheReport:
    """Compare a prompt, of which `cached` tokens were taken, with the nearest of those before it."""
    node = root
    for child in cache.follow(root, prompt, len(prompt) // block_tokens):
        node = child
    known = node.depth * block_tokens
    dropped = _dropped(cache, node.digest, prompt[known:], block_tokens)
    if dropped:
        return CacheReport(cached, known + dropped, CacheMiss.EVICTED)
    shared, ended = _nearest(node, tuple(prompt[known:]))
    whole = (len(prompt) - 1) // block_tokens * block_tokens
    return CacheReport(cached, known + shared, _reason(cached, known, shared, ended, whole))


def _reason(cached: int, known: int, shared: int, ended: bool, whole: int) -> CacheMiss:
    if cached == whole:
        return CacheMiss.WHOLE
    if known + shared == 0:
        return CacheMiss.COLD
    if not ended:
        return CacheMiss.DIFFERS
    return CacheMiss.EVICTED if cached < min(known, whole) else CacheMiss.WHOLE


def _dropped(cache: PrefixCache, digest: bytes, tokens: list[int], block_tokens: int) -> int:
    """How many of the tokens that follow a chain were cached once."""
    count = 0
    while count + block_tokens <= len(tokens):
        digest = block_digest(digest, tokens[count : count + block_tokens])
        if not cache.was_evicted(digest):
            break
        count += block_tokens
    return count


def _nearest(node: Node, tokens: tuple[int, ...]) -> tuple[int, bool]:
    """Compare tokens that follow a node with what followed it before.

    Returns how many tokens the longest match shares, and whether it or the tokens end there.
    """
    others = [*(child.tokens for child in node.children.values()), *node.tails]
    most, is_ended = 0, not others
    for other in others:
        shared = _common(other, tokens)
        ends_here = shared == min(len(other), len(tokens))
        if shared > most:
            most, is_ended = shared, ends_here
        elif shared == most:
            is_ended = is_ended or ends_here
    return most, is_ended


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
