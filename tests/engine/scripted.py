"""A runner whose logits are a function of the tokens that its blocks hold, and a tokenizer of one letter a token."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.api.sampling import Sampling
from engine.run.runner_protocol import MAX_KEPT_ROWS, NO_BLOCK, DraftModel, KvGroup, SequenceRows
from engine.text.tokenizer import Tokenizer

VOCAB_SIZE = 32
END_ID = 0
HIDDEN = 4


class ScriptedRunner:
    """Keeps tokens where a model keeps keys and values: a block given to two sequences changes their logits.

    `windows` gives each group of layers its window; with `state_slots`, the recurrent state of a sequence is the tokens
    that it has seen. Groups and state that do not tell the same tokens are a fault, which ends the request.
    """

    def __init__(
        self,
        *,
        n_blocks: int = 64,
        block_tokens: int = 4,
        max_rows: int = 64,
        max_logit_rows: int = 16,
        context_length: int = 64,
        windows: tuple[int, ...] = (0,),
        state_slots: int = 0,
    ) -> None:
        self.groups = tuple(KvGroup(n_blocks, block_tokens * 8, window) for window in windows)
        self.state_slots, self.state_bytes = state_slots, context_length * 8
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
        self.likeliest: list[int] = []
        self.draft: DraftModel | None = None
        self._caches = [np.full((n_blocks, block_tokens), -1) for _ in windows]
        self._states = np.full((state_slots, context_length), -1)
        self._kept: dict[int, range] = {}  # by slot: positions of the rows of its last step, if it kept its states

    def run(self, batch: Sequence[SequenceRows], meanwhile: Callable[[], None] | None = None) -> NDArray[np.float32]:
        assert batch and not self.closed
        assert sum(len(rows.tokens) for rows in batch) <= self.max_rows
        self.batches.append([(rows.position, len(rows.tokens)) for rows in batch])
        self.before_run(batch)
        if meanwhile is not None:
            meanwhile()
        for rows in batch:
            self._write(rows)
        states = [hidden_state(self._read(rows)[: rows.position + i + 1]) for rows in batch for i in rows.final_rows]
        self.final = np.array(states, np.float32).reshape(len(states), HIDDEN)
        wanted = [self.logits_of(known) for rows in batch for known in self._known(rows)]
        assert len(wanted) <= self.max_logit_rows
        self.likeliest = [*map(likeliest_of, wanted)]
        return np.array(wanted, np.float32).reshape(len(wanted), VOCAB_SIZE)

    def close(self) -> None:
        self.closed = True

    def rewind(self, slot: int, rows: int) -> None:
        if self.state_slots:
            assert rows <= len(self._kept[slot])
            self._kept[slot] = self._kept[slot][:rows]
            self._states[slot, self._kept[slot].stop :] = -1

    def copy_state(self, source: int, target: int) -> None:
        self._kept.pop(target, None)
        self._states[target] = self._states[source]

    def read_block(self, group: int, block: int) -> bytes:
        return bytes(self._caches[group][block])

    def write_block(self, group: int, block: int, data: bytes) -> None:
        self._caches[group][block] = np.frombuffer(data, np.int64)

    def read_state(self, slot: int) -> bytes:
        return bytes(self._states[slot])

    def write_state(self, slot: int, data: bytes) -> None:
        self._states[slot] = np.frombuffer(data, np.int64)

    def _write(self, rows: SequenceRows) -> None:
        for cache, table in zip(self._caches, rows.block_tables, strict=True):
            for position, token in enumerate(rows.tokens, rows.position):
                block, slot = divmod(position, self.block_tokens)
                assert table[block] != NO_BLOCK
                cache[table[block], slot] = token
        if self.state_slots:
            state = self._states[rows.state_slot]
            if rows.position == 0:
                state[:] = -1
            state[rows.position : rows.position + len(rows.tokens)] = rows.tokens
            state[rows.position + len(rows.tokens) :] = -1
            self._kept.pop(rows.state_slot, None)
            if rows.keep_states:
                assert len(rows.tokens) <= MAX_KEPT_ROWS
                self._kept[rows.state_slot] = range(rows.position, rows.position + len(rows.tokens))

    def _known(self, rows: SequenceRows) -> list[tuple[int, ...]]:
        """The tokens up to each row that logits are wanted of."""
        tokens = self._read(rows)
        return [tokens[: len(tokens) - back] for back in reversed(range(rows.logit_rows))]

    def _read(self, rows: SequenceRows) -> tuple[int, ...]:
        length = rows.position + len(rows.tokens)
        told = [
            _seen(cache, table, group.window, rows.position, length)
            for cache, table, group in zip(self._caches, rows.block_tables, self.groups, strict=True)
        ]
        if self.state_slots:
            told.append(tuple(self._states[rows.state_slot, :length].tolist()))
        longest = max(told, key=len)
        assert all(longest[len(longest) - len(each) :] == each for each in told), "the memories of a sequence differ"
        return longest


def _seen(cache: NDArray[np.int64], table: Sequence[int], window: int, first_row: int, length: int) -> tuple[int, ...]:
    """The tokens that rows from `first_row` up to `length` see of a group's blocks, the last rows' window at least."""
    block_tokens = cache.shape[1]
    begin = max(0, first_row + 1 - window) if window else 0
    places = [(table[position // block_tokens], position % block_tokens) for position in range(begin, length)]
    assert all(block != NO_BLOCK for block, _ in places), "a block that rows see was given back"
    return tuple(int(cache[place]) for place in places)


def hashed_logits(tokens: tuple[int, ...]) -> NDArray[np.float32]:
    """Random-looking logits of all tokens so far; the end of the turn is rare."""
    rng = np.random.default_rng(zlib.crc32(np.array(tokens, np.int64).tobytes()))
    logits = rng.normal(0, 2, VOCAB_SIZE).astype(np.float32)
    logits[END_ID] -= 2
    return logits


def likeliest_of(logits: NDArray[np.float32]) -> int:
    """As ModelRunner has it."""
    numbers = np.where(np.isnan(logits), -np.inf, logits)
    return int(numbers.argmax()) if numbers.max() > -np.inf else -1


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
    prompt: tuple[int, ...] | Prompt = (1, 2, 3),
    *,
    max_tokens: int | None = 8,
    stop: tuple[str, ...] = (),
    ignore_eos: bool = False,
    name: str = "r",
    sampling: Sampling | None = None,
    **others: Any,
) -> Request:
    """A short greedy request, unless told otherwise."""
    return Request(
        id=name,
        prompt=prompt if isinstance(prompt, Prompt) else Prompt(prompt),
        max_tokens=max_tokens,
        stop=stop,
        ignore_eos=ignore_eos,
        sampling=sampling or Sampling(temperature=0),
        **others,
    )
