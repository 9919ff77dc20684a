"""A runner whose logits are a function of the tokens that its blocks hold, and a tokenizer of one letter a token."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from engine.request import Request, SamplingParams
from engine.runner_protocol import SequenceRows
from engine.text.tokenizer import Tokenizer

VOCAB_SIZE = 32
END_ID = 0
HIDDEN = 4


class ScriptedRunner:
    """Keeps tokens where a model keeps keys and values: a block given to two sequences changes their logits."""

    def __init__(
        self,
        *,
        n_blocks: int = 64,
        block_tokens: int = 4,
        max_rows: int = 64,
        max_logit_rows: int = 16,
        context_length: int = 64,
    ) -> None:
        self.n_blocks = n_blocks
        self.block_tokens = block_tokens
        self.max_rows = max_rows
        self.max_logit_rows = max_logit_rows
        self.context_length = context_length
        self.vocab_size = VOCAB_SIZE
        self.closed = False
        self.batches: list[list[tuple[int, int]]] = []  # (position, rows) of each sequence of each step
        self.before_run: Callable[[Sequence[SequenceRows]], None] = lambda batch: None
        self.logits_of: Callable[[tuple[int, ...]], NDArray[np.float32]] = hashed_logits
        self.final = np.zeros((0, HIDDEN), np.float32)
        self._cache = np.full((n_blocks, block_tokens), -1)

    def run(self, batch: Sequence[SequenceRows]) -> NDArray[np.float32]:
        assert batch and not self.closed
        assert sum(len(rows.tokens) for rows in batch) <= self.max_rows
        self.batches.append([(rows.position, len(rows.tokens)) for rows in batch])
        self.before_run(batch)
        for rows in batch:
            self._write(rows)
        states = [hidden_state(self._read(rows)[: rows.position + i + 1]) for rows in batch for i in rows.final_rows]
        self.final = np.array(states, np.float32).reshape(len(states), HIDDEN)
        wanted = [self.logits_of(known) for rows in batch for known in self._known(rows)]
        assert len(wanted) <= self.max_logit_rows
        return np.array(wanted, np.float32).reshape(len(wanted), VOCAB_SIZE)

    def close(self) -> None:
        self.closed = True

    def _write(self, rows: SequenceRows) -> None:
        for position, token in enumerate(rows.tokens, rows.position):
            block, slot = divmod(position, self.block_tokens)
            self._cache[rows.block_table[block], slot] = token

    def _known(self, rows: SequenceRows) -> list[tuple[int, ...]]:
        """The tokens up to each row that logits are wanted of."""
        tokens = self._read(rows)
        return [tokens[: len(tokens) - back] for back in reversed(range(rows.logit_rows))]

    def _read(self, rows: SequenceRows) -> tuple[int, ...]:
        length = rows.position + len(rows.tokens)
        return tuple(int(token) for token in self._cache[rows.block_table].reshape(-1)[:length])


def hashed_logits(tokens: tuple[int, ...]) -> NDArray[np.float32]:
    """Random-looking logits of all tokens so far; the end of the turn is rare."""
    rng = np.random.default_rng(zlib.crc32(np.array(tokens, np.int64).tobytes()))
    logits = rng.normal(0, 2, VOCAB_SIZE).astype(np.float32)
    logits[END_ID] -= 2
    return logits


def hidden_state(tokens: tuple[int, ...]) -> NDArray[np.float32]:
    """A random-looking final state after these tokens."""
    rng = np.random.default_rng(zlib.crc32(np.array(tokens, np.int64).tobytes()))
    return rng.normal(0, 1, HIDDEN).astype(np.float32)


def script(prompt_tokens: int, tokens: Iterable[int]) -> Callable[[tuple[int, ...]], NDArray[np.float32]]:
    """Logits that make a greedy request with such a prompt say `tokens`."""
    said = list(tokens)

    def logits_of(known: tuple[int, ...]) -> NDArray[np.float32]:
        logits = np.zeros(VOCAB_SIZE, np.float32)
        logits[said[len(known) - prompt_tokens]] = 1
        return logits

    return logits_of


class LetterTokenizer:
    """Tokens 1 to 26 are letters, 27 to 31 the bytes of a euro sign and two spaces; 0 ends a turn."""

    vocab_size = VOCAB_SIZE
    bos_id = None
    add_bos = False
    end_ids = frozenset({END_ID})
    pieces = (b"", *(bytes([97 + i]) for i in range(26)), b"\xe2", b"\x82", b"\xac", b" ", b"  ")

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def token_text(self, token: int) -> str:
        return "<end>" if token == END_ID else self.pieces[token].decode("latin-1")


def letter_tokenizer() -> Tokenizer:
    return cast(Tokenizer, LetterTokenizer())


def letters(text: str) -> tuple[int, ...]:
    """The tokens of a text of small letters."""
    return tuple(ord(letter) - 96 for letter in text)


def a_request(
    prompt: tuple[int, ...] = (1, 2, 3),
    *,
    max_tokens: int | None = 8,
    stop: tuple[str, ...] = (),
    ignore_eos: bool = False,
    name: str = "r",
    sampling: SamplingParams | None = None,
    **others: Any,
) -> Request:
    """A short greedy request, unless told otherwise."""
    return Request(
        id=name,
        prompt=prompt,
        max_tokens=max_tokens,
        stop=stop,
        ignore_eos=ignore_eos,
        sampling=sampling or SamplingParams(temperature=0),
        **others,
    )
