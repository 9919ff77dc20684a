"""The program that tries grammars out, in a process of its own, and how llguidance is set up there and in the server.

A grammar comes from strangers. Most that are too large end at llguidance's own limits, which count steps of work: they
decide alike on every machine. Some do not end there, and take minutes or gigabytes in one native call that nothing can
stop. Here the operating system's limits end the process instead, and the server starts another. One JSON request a line
in, one reply a line out; the first line is the vocabulary. Only llguidance and the standard library are imported, since
the file is run by its path.
"""

import json
import resource
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

PROCESSOR_SECONDS = 15.0  # a last resort: what the limits below allow takes 3 s at most, measured
MEMORY_BYTES = 64 << 20  # beside what the process has before the grammar
LONGEST_COMPLAINT = 300  # characters
_PAGE_BYTES = resource.getpagesize()
# For a token of an answer these allow some 0.2 s at most, measured (tests/engine/constraints/test_bombs.py has the
# grammars): the time of a mask grows with the third power of the items in a row. 1,000 alternatives of objects fit.
_LIMITS = LLParserLimits(
    max_items_in_row=1_000,
    step_max_items=25_000,
    step_lexer_fuel=200_000,
    initial_lexer_fuel=1_000_000,
    max_lexer_states=20_000,
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
# No token is ever forced: the mask alone decides, and no text is tokenized while it is computed.
_OPTIONS = '%llguidance {"no_forcing": true}\n'


class _TokenTable:
    """A vocabulary as llguidance reads it; the names are llguidance's."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Collection[int], ends: Collection[int]) -> None:
        self.tokens = tokens
        self.special_token_ids = sorted(special)
        self.eos_token_id = min(ends, default=0)

    def __call__(self, text: str) -> list[int]:
        """Tell how a forced text is tokenized; none is, see _OPTIONS."""
        raise AssertionError(text)


def token_trie(tokens: Sequence[bytes], special: Collection[int], ends: Collection[int]) -> LLTokenizer:
    """Take each token's bytes; those of a special token are its name, which no text matches."""
    table = _TokenTable(tokens, special, ends)
    return LLTokenizer(table, eos_token=sorted(ends) or None)  # type: ignore[arg-type]  # any class with these names


def compiled(trie: LLTokenizer, grammar: str) -> LLMatcher:
    """Never raises: see its is_error. The global interpreter lock is not held meanwhile."""
    return LLMatcher(trie, _OPTIONS + grammar, log_level=0, limits=_LIMITS)


def _stand_in_trie(size: int, special: Mapping[int, str], ends: Collection[int]) -> LLTokenizer:
    """One token for each byte, the special tokens, and nothing else: grammars compile as with the real vocabulary."""
    tokens = [special.get(token, "").encode() for token in range(size)]
    plain = [token for token in range(size) if token not in special]
    for byte, token in enumerate(plain[:256]):
        tokens[token] = bytes([byte])
    return token_trie(tokens, special, ends)


def _try_out(trie: LLTokenizer, grammar: str) -> tuple[str, str]:
    """Kind of reply (good, failed) and its words. The first mask shows whether any text matches the grammar at all."""
    matcher = compiled(trie, grammar)
    if not matcher.is_error():
        matcher.compute_bitmask()
    error = matcher.get_error()
    return ("failed", error) if error else ("good", "")


def _limit_next() -> None:
    """From now on: so much processor time, and so much memory more than now; past either the process ends.

    A process that is out of memory ends by another signal than SIGPROF, or with an error.
    """
    with open("/proc/self/statm") as sizes:
        memory = int(sizes.read().split()[0]) * _PAGE_BYTES + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)  # SIGPROF ends the process: native code sees no handler


def _reply(kind: str, words: str) -> None:
    sys.stdout.write(json.dumps([kind, words[:LONGEST_COMPLAINT]]) + "\n")
    sys.stdout.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    vocabulary: dict[str, Any] = json.loads(sys.stdin.readline())
    special = {int(token): name for token, name in vocabulary["special"].items()}
    trie = _stand_in_trie(vocabulary["size"], special, vocabulary["ends"])
    for line in sys.stdin:
        _limit_next()
        kind, words = _try_out(trie, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(kind, words)


if __name__ == "__main__":
    main()
