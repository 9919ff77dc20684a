"""Broken or unknown tokenizer metadata is refused in one sentence that names the key."""

import pytest

from engine.errors import ModelError, ModelFileError, UnsupportedModelError
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary
from tests.engine.text.vocabularies import tiny_bpe_metadata, tiny_spm_metadata

BPE_TOKENS = list(Vocabulary.from_metadata(tiny_bpe_metadata()).tokens)


def refusal(values: dict[str, object]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        Tokenizer.from_metadata(values)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", None),
        ("model", 7),
        ("pre", ["gpt-2"]),
        ("tokens", None),
        ("tokens", "abc"),
        ("tokens", []),
        ("tokens", [*BPE_TOKENS[:-1], 7]),
        ("token_type", [1, 2]),
        ("token_type", ["1"] * len(BPE_TOKENS)),
        ("token_type", 1),
        ("merges", None),
        ("merges", ["he"]),
        ("merges", [" he"]),
        ("merges", [b"h e"]),
        ("merges", ["h \u00e9\u00e9"]),
        ("bos_token_id", len(BPE_TOKENS)),
        ("bos_token_id", -1),
        ("eos_token_id", "2"),
        ("eos_token_id", True),
        ("eot_token_id", 1 << 40),
        ("add_bos_token", 1),
    ],
)
def test_a_broken_bpe_vocabulary_is_refused(key: str, value: object) -> None:
    error = refusal(tiny_bpe_metadata(**{key: value}))
    assert isinstance(error, ModelFileError)
    assert key in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scores", None),
        ("scores", [0.0]),
        ("scores", [0.0] * 259 + [float("nan")]),
        ("scores", ["x"] * 260),
        ("add_space_prefix", "yes"),
        ("tokens", ["<unk>", *(f"t{i}" for i in range(259))]),
    ],
)
def test_a_broken_sentencepiece_vocabulary_is_refused(key: str, value: object) -> None:
    error = refusal(tiny_spm_metadata({"a": 0.0}, **{key: value}))
    assert isinstance(error, ModelFileError)
    assert key in str(error)


def test_unknown_kinds_are_named() -> None:
    for key in ("model", "pre"):
        error = refusal(tiny_bpe_metadata(**{key: "martian"}))
        assert isinstance(error, UnsupportedModelError)
        assert "'martian'" in str(error)


def test_a_file_without_types_and_pre_tokenizer_is_read_as_plain() -> None:
    values = tiny_bpe_metadata(token_type=None, pre=None)
    vocabulary = Vocabulary.from_metadata(values)
    assert vocabulary.pre == "default"
    assert Tokenizer.from_metadata(values).end_ids == {vocabulary.ids["<|im_end|>"]}


def test_nameless_tokens_are_kept_in_their_place() -> None:
    tokens = [*BPE_TOKENS[:-1], ""]
    own = Tokenizer.from_metadata(tiny_bpe_metadata(tokens=tokens))
    assert own.vocab_size == len(tokens)
    assert own.token_text(len(tokens) - 1).startswith("[EMPTY")


def test_harmonys_end_of_channel_does_not_end_the_turn() -> None:
    tokens = [*BPE_TOKENS, "<|return|>", "<|call|>", "<|end|>"]
    types = [1] * len(BPE_TOKENS) + [3, 3, 3]
    vocabulary = Vocabulary.from_metadata(tiny_bpe_metadata(tokens=tokens, token_type=types))
    ends = {tokens[token] for token in vocabulary.end_ids}
    assert ends == {"<|im_end|>", "<|return|>", "<|call|>"}


def test_html_that_looks_like_an_end_token_is_plain_text() -> None:
    tokens = [*BPE_TOKENS, "</s>"]
    values = tiny_bpe_metadata(tokens=tokens, token_type=[1] * len(tokens))
    assert len(tokens) - 1 not in Tokenizer.from_metadata(values).end_ids


def test_infilling_tokens_are_named_by_the_file_or_known_by_their_names() -> None:
    plain = tiny_bpe_metadata()
    assert Vocabulary.from_metadata(plain).infill_ids is None
    ids = {f"tokenizer.ggml.fim_{key}_token_id": place for place, key in enumerate(("pre", "suf", "mid"))}
    assert Vocabulary.from_metadata(plain | ids).infill_ids == (0, 1, 2)
    tokens = [*BPE_TOKENS, "<fim_prefix>", "<fim_suffix>", "<fim_middle>"]
    size = len(BPE_TOKENS)
    named = plain | {"tokenizer.ggml.tokens": tokens}
    named.pop("tokenizer.ggml.token_type", None)
    assert Vocabulary.from_metadata(named).infill_ids == (size, size + 1, size + 2)
