"""Every mutant of a tokenizer's metadata is refused, warned about, or another tokenizer, or known to be the same.

A mutant differs from its tokenizer in one key, which is changed, dropped or added.
"""

from collections import Counter
from collections.abc import Iterator

import gguf
import numpy as np
import pytest

from engine.errors import ModelError
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_keys import tokenizer_warnings
from tests.engine.text.vocabularies import tiny_bpe_metadata, tiny_spm_metadata

PREFIX = "tokenizer.ggml."
SPM_PIECES = {"a": -1.0, "b": -2.0, "ab": -3.0, "bb": -2.5, "\u2581": -4.0, "\u2581ab": -5.0}
TOKENIZERS = {
    "bpe": tiny_bpe_metadata(add_bos_token=True, add_eos_token=True),
    "sentencepiece": tiny_spm_metadata(SPM_PIECES, add_bos_token=True, bos_token_id=1, eos_token_id=2),
}
TEXTS = ("hello world", "ab ab  aab abb", " don't 1234", "<|im_start|>hell<think>", "<s>x</s>")
# Padding and masks, separators and types of texts, which have no place in what is served.
HARMLESS = ("padding_token_id", "mask_token_id", "unknown_token_id", "seperator_token_id", "cls_token_id")
OTHERS = ("add_sep_token", "token_type_count", "separator_token_id")
INFILL = tuple(f"{part}_token_id" for part in ("fim_pre", "fim_suf", "fim_mid", "prefix", "suffix", "middle"))
# What a tokenizer of the other kind has.
OF_ANOTHER_KIND = {
    "bpe": ("scores", "add_space_prefix"),
    "sentencepiece": ("merges", "pre"),
}
# As the format has it for SentencePiece where the file says nothing.
FOLLOWS = ("bos_token_id", "eos_token_id", "add_bos_token", "add_eos_token", "add_space_prefix")


def behaviour(metadata: dict[str, object]) -> tuple[object, ...]:
    """All that others hear of a tokenizer."""
    own = Tokenizer.from_metadata(metadata)
    ids = [[own.encode(text, parse_special=special) for special in (False, True)] for text in TEXTS]
    whole = [(own.encode_prompt(text), own.encode_document(text)) for text in TEXTS]
    written = [(own.token_bytes(token), own.token_text(token)) for token in range(own.vocab_size)]
    marks = (own.bos_id, own.eos_id, own.end_ids, own.add_bos, own.infill_ids, own.control_tokens, own.user_tokens)
    return ids, whole, written, marks


def changes_of(value: object) -> Iterator[object]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, 10**6, -1)
        case str():
            yield f"{value}x"
        case list() if isinstance(value[0], str):
            yield from (value[1:], value[:-1], [*value[:40], "other", *value[41:]])
        case list():
            yield from (value[1:], [0] * len(value))
    yield {"of": "another type"}


def mutants(metadata: dict[str, object]) -> Iterator[tuple[str, str, dict[str, object]]]:
    for key, value in metadata.items():
        yield "dropped", key, {other: each for other, each in metadata.items() if other != key}
        for change in changes_of(value):
            yield "changed", key, metadata | {key: change}
    names = {value for value in vars(gguf.Keys.Tokenizer).values() if isinstance(value, str)}
    names.add(f"{PREFIX}made_up")
    for key in sorted(name for name in names if name.startswith(PREFIX) and name not in metadata):
        for added in (True, 5, "text", ["a", "b"], np.ones(3, np.uint8)):
            yield "added", key, metadata | {key: added}


def may_be_same(kind: str, name: str, change: str, mutant: dict[str, object]) -> bool:
    if name in (*HARMLESS, *OTHERS) or name in OF_ANOTHER_KIND[kind]:
        return True
    if change == "dropped":
        return name in FOLLOWS
    # Of the three tokens of infilling one alone; a space before a text, as where nothing is said of it.
    return name in INFILL or (name, mutant[PREFIX + name]) == ("add_space_prefix", True)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_no_mutant_of_a_tokenizer_is_silently_the_same(kind: str) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    silent: list[tuple[str, str, object]] = []
    own = behaviour(TOKENIZERS[kind])
    for change, key, mutant in mutants(TOKENIZERS[kind]):
        try:
            found = "other" if behaviour(mutant) != own else "warned" if tokenizer_warnings(mutant) else "same"
        except ModelError as error:
            assert "\n" not in str(error)
            found = "refused"
        if found == "same" and not may_be_same(kind, key.removeprefix(PREFIX), change, mutant):
            silent.append((change, key, mutant.get(key)))
        counts[change, found] += 1
    assert not silent
    assert {found for _, found in counts} >= {"refused", "other", "warned"}
    print(f"{kind}: {sum(counts.values())} mutants, {dict(counts)}")
