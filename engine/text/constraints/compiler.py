"""Grammar text to a compiled constraint: checked first in a process that may be killed, then built here and cached.

The dialect is llguidance's Lark. What was tried and holds, for whoever writes grammars:

- Rules are lowercase, terminals UPPERCASE; the first rule is `start`. A terminal is one regex: `&` and `~` work there
  only, and it may name no special token. Repeat with `x{2,3}`, `x*`, `x+`, `x?`; prefer `x+` to recursion.
- Strings "..." are JSON strings (\\u and \\n are fine, a raw \\x7f is not); regexes /.../ are those of Rust: no
  look-around, no back-reference, `.` is not a newline: any text is /(.|\\n)*/ or /(?s:.*)/.
- `<[123]>` is the token 123, `<[1-4,9]>` any of these; `<|name|>` a special token by its name. Special are the
  tokenizer's silent tokens (control, unknown, unused) and the `marks` that the compiler was given: no text, regex or
  string ever allows them, and a name inside a string is spelled with ordinary tokens.
  `start: TEXT <[7]> rule` with `TEXT: /(.|\\n)*/` is free text, then token 7, then the rule.
- Where the mark is no single token: `head[lazy]: TEXT "<go>"` or `head[suffix="<go>"]: /(.|\\n)*/` read as little as
  possible, up to the first "<go>". `start: call* TEXT` with `call: head %json {..}` is text with calls in it.
- `%json {..}` is an inline schema: its options stand in "x-guidance" at its top. Several of them may begin alike:
  alternatives stay open. `%regex {..}` is llguidance's own (substrings). A whole grammar nests, with its own `start`
  and `%ignore`, as `%lark {` newline, the text, newline `}`.
- `x[max_tokens=3]: /re/` works for one terminal. `stop=` and `temperature=` are not for us: use suffix=.
- End tokens need not be written: they are allowed wherever `start` is complete, and nowhere else.
- While it runs: at most 1,000 parser items in a row, 20,000 lexer states, some fuel a step; else the request ends.
"""

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from engine.api.constraint import Constraint
from engine.errors import RequestError
from engine.text.constraints.matcher import WORD, CompiledGrammar
from engine.text.sandbox.compile_process import CompileProcess
from engine.text.sandbox.compile_worker import compiled, token_trie
from engine.text.tokenizer import Tokenizer

LONGEST_GRAMMAR = 2 << 20  # characters
CACHE_BYTES = 64 << 20
# What a compiled grammar takes, measured: 74 kB for one of 170 characters, 220 kB for 1,500, 57 MB for 380,000.
_BYTES_A_GRAMMAR = 1 << 16
_BYTES_A_CHARACTER = 160
_PLACE = re.compile(r"^(at )?\d+\(\d+\): |\n\s+\d+ \| .*|<non-verbose/>", re.DOTALL)  # in a text of ours, and that text
_WORDS = {
    "NoExtensionBias": "no text matches it",
    "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate oneOf with anyOf": (
        "the alternatives of a oneOf must exclude each other by type, or by a const of a required property; use anyOf"
    ),
}


class ConstraintCompiler:
    """Compiles for one vocabulary; thread-safe. `marks` are tokens that only a grammar's `<[id]>` may allow."""

    def __init__(self, tokenizer: Tokenizer, marks: frozenset[int] = frozenset()) -> None:
        self._tokenizer, self._marks = tokenizer, marks
        self._end_bits = bits(tokenizer.end_ids, tokenizer.vocab_size)
        self._cache = _GrammarCache(CACHE_BYTES)
        self._first_use = threading.Lock()
        self._tools: _Tools | None = None

    def compile(self, grammar: str, *, param: str) -> Constraint:
        """Blocking: not for the event loop. Raises RequestError: the grammar is wrong, impossible or too large.

        Raises GrammarTimeoutError where the machine did not get that far, and keeps nothing of it.
        """
        if not self._end_bits.any():
            raise RequestError("The model has no end token, so no grammar can end an answer; drop this.", param=param)
        if len(grammar) > LONGEST_GRAMMAR:
            raise RequestError(
                f"The grammar is longer than {LONGEST_GRAMMAR} characters; make it smaller.", param=param
            )
        result = self._cache.get(grammar)
        if result is None:
            result = self._compile(grammar)
            self._cache.put(grammar, result)
        if isinstance(result, str):
            raise RequestError(f"The grammar cannot be used: {result}.", param=param)
        return CompiledGrammar(result, self._end_bits, param)

    def _compile(self, grammar: str) -> LLMatcher | str:
        """The compiled grammar, or what is wrong with it."""
        tools = self._ready_tools()
        complaint = tools.process.complaint(grammar)
        if not complaint:
            matcher = compiled(tools.trie, grammar)
            complaint = matcher.get_error()
            if not complaint:
                return matcher
        return _told(complaint)

    def _ready_tools(self) -> "_Tools":
        """Made at the first grammar: of a large vocabulary it takes seconds, which no start should wait for."""
        with self._first_use:
            if self._tools is None:
                self._tools = _Tools.of(self._tokenizer, self._marks)
            return self._tools


@dataclass(frozen=True, slots=True)
class _Tools:
    """What compiles grammars for one vocabulary."""

    trie: LLTokenizer
    process: CompileProcess

    @classmethod
    def of(cls, tokenizer: Tokenizer, marks: frozenset[int]) -> "_Tools":
        size, ends = tokenizer.vocab_size, tokenizer.end_ids
        written = [tokenizer.token_bytes(token) for token in range(size)]
        special = {token: tokenizer.token_text(token) for token in range(size) if token in marks or not written[token]}
        for token, name in special.items():
            written[token] = name.encode()
        process = CompileProcess({"size": size, "special": special, "ends": sorted(ends)})
        return cls(token_trie(written, special, ends), process)


def _told(complaint: str) -> str:
    """What is wrong, in one line, without llguidance's advice to its callers."""
    text = " ".join(_PLACE.sub("", complaint).split()).rstrip(".")
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return text


class _GrammarCache:
    """The grammars used last, within so many bytes; of a bad grammar it keeps what is wrong."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, LLMatcher | str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, grammar: str) -> LLMatcher | str | None:
        with self._lock:
            if grammar in self._entries:
                self._entries.move_to_end(grammar)
            return self._entries.get(grammar)

    def put(self, grammar: str, result: LLMatcher | str) -> None:
        with self._lock:
            if grammar not in self._entries:
                self._bytes += _size(grammar, result)
            self._entries[grammar] = result
            while self._bytes > self._max_bytes:
                self._bytes -= _size(*self._entries.popitem(last=False))


def _size(grammar: str, result: LLMatcher | str) -> int:
    if isinstance(result, str):
        return 4 * len(grammar) + len(result) + 1000
    return _BYTES_A_GRAMMAR + _BYTES_A_CHARACTER * len(grammar)


def bits(tokens: frozenset[int], size: int) -> NDArray[np.int32]:
    """A mask that allows these tokens of a vocabulary of this size."""
    allowed = np.zeros(-(-size // WORD) * WORD, np.uint8)
    allowed[list(tokens)] = 1
    return np.packbits(allowed, bitorder="little").view(np.int32)
