"""tokenizer.json of real vocabularies gives llama.cpp's token ids, and what is broken or unknown is one sentence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError, ModelFileError, UnsupportedModelError
from engine.text.pretokenizers import pre_tokenizer_name
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_json import tokenizer_metadata
from tests.engine.text.vocabularies import load, metadata, model

# As the models' own tokenizer.json files have them.
SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "llama-bpe": SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
    "qwen2": SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
    "qwen35": SUFFIXES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES,
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    **{
        name: {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {**BYTE_LEVEL, "use_regex": False},
            ],
        }
        for name, pattern in SPLITS.items()
    },
}
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6


def byte_level_json(name: str) -> dict[str, Any]:
    """The tokenizer.json that a model's GGUF metadata was made from."""
    values: Mapping[str, Any] = metadata(name)
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    return {
        "added_tokens": [
            {"id": i, "content": tokens[i], "special": kind != USER}
            for i, kind in enumerate(types)
            if kind in (CONTROL, USER)
        ],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[name],
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "ignore_merges": name == "llama-bpe",
            "vocab": {text: i for i, text in enumerate(tokens) if types[i] == NORMAL},
            "merges": values["tokenizer.ggml.merges"],
        },
    }


def sentencepiece_json() -> dict[str, Any]:
    """Llama 2's: every way to make a token of two others is a merge, the best token's first."""
    values: Mapping[str, Any] = metadata("llama-spm")
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    scores = values["tokenizer.ggml.scores"]
    ids = {text: i for i, text in enumerate(tokens)}
    merged = sorted((i for i, kind in enumerate(types) if kind == NORMAL), key=lambda i: -scores[i])
    splits = ((tokens[i][:at], tokens[i][at:]) for i in merged for at in range(1, len(tokens[i])))
    return {
        "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": ids,
            "merges": [[left, right] for left, right in splits if left in ids and right in ids],
        },
    }


def write(folder: Path, body: object, **others: object) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(body))
    for name, content in others.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "qwen2", "qwen35", "llama-bpe", "llama-spm"])
def test_tokens_and_token_ids_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
    body = sentencepiece_json() if name == "llama-spm" else byte_level_json(name)
    found, expected = tokenizer_metadata(write(tmp_path, body), 0), metadata(name)
    for key in ("tokens", "token_type", "model", "merges"):
        if f"tokenizer.ggml.{key}" in found:
            assert list(found[f"tokenizer.ggml.{key}"]) == list(expected[f"tokenizer.ggml.{key}"]), key  # type: ignore[arg-type, call-overload]
    tokenizer = Tokenizer.from_metadata(found)
    vectors = [*model(name)["vectors"], *((load("texts")[index], ids) for index, ids in model(name)["llama_cpp"])]
    assert len(vectors) > 40
    for text, ids in vectors:
        assert tokenizer.encode(text) == ids, text


def tiny(**changes: object) -> dict[str, Any]:
    body: dict[str, Any] = {
        "added_tokens": [
            {"id": 4, "content": "<s>", "special": True},
            {"id": 5, "content": "</s>", "special": True},
            {"id": 6, "content": "<call>", "special": True},
            {"id": 7, "content": "<think>", "special": False},
        ],
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    }
    return body | changes


def test_special_tokens_come_from_the_files_beside_it(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True, "chat_template": "config"}
    write(tmp_path, tiny(), tokenizer_config=config, generation_config={"eos_token_id": [5, 6]})
    values = tokenizer_metadata(tmp_path, 10)
    tokenizer = Tokenizer.from_metadata(values)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (4, 5, True)
    assert tokenizer.end_ids == {5, 6}
    assert values["tokenizer.chat_template"] == "config"
    assert values["tokenizer.ggml.tokens"] == [
        "a",
        "b",
        "ab",
        "[PAD3]",
        "<s>",
        "</s>",
        "<call>",
        "<think>",
        "[PAD8]",
        "[PAD9]",
    ]
    assert list(values["tokenizer.ggml.token_type"]) == [1, 1, 1, 5, 3, 3, 3, 4, 5, 5]  # type: ignore[arg-type]
    (tmp_path / "chat_template.jinja").write_text("file")
    assert tokenizer_metadata(tmp_path, 0)["tokenizer.chat_template"] == "file"


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    write(tmp_path, tiny(), tokenizer_config={"chat_template": templates})
    assert tokenizer_metadata(tmp_path, 0)["tokenizer.chat_template"] == "plain"


def test_bos_is_added_where_the_post_processor_does_so(tmp_path: Path) -> None:
    single = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    post = {"type": "Sequence", "processors": [BYTE_LEVEL, {"type": "TemplateProcessing", "single": single}]}
    write(tmp_path, tiny(post_processor=post), tokenizer_config={"bos_token": "<s>", "eos_token": "</s>"})
    values = tokenizer_metadata(tmp_path, 0)
    assert (values["tokenizer.ggml.add_bos_token"], values["tokenizer.ggml.add_eos_token"]) == (True, False)


def test_a_folder_without_tokenizer_has_no_metadata_of_one(tmp_path: Path) -> None:
    assert tokenizer_metadata(tmp_path, 0) == {}


def test_other_spellings_of_a_pre_tokenizer_are_known(tmp_path: Path) -> None:
    pattern = SPLITS["qwen2"].replace(r"\r\n", "\r\n")
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}
    value = {"type": "Sequence", "pretokenizers": [split, {**BYTE_LEVEL, "use_regex": False}]}
    assert pre_tokenizer_name(value, False, tmp_path) == "qwen2"


BROKEN: dict[str, tuple[object, str]] = {
    "a list": ([], "no JSON object"),
    "no model": ({}, "of the kind None"),
    "a unigram model": ({"model": {"type": "Unigram"}}, "of the kind 'Unigram'"),
    "no vocabulary": (tiny(model={"type": "BPE"}), "vocab does not give each token a number"),
    "ids of text": (tiny(model={"type": "BPE", "vocab": {"a": "0"}}), "vocab does not give"),
    "no tokens": (tiny(model={"type": "BPE", "vocab": {}}, added_tokens=[]), "its ids are not within"),
    "a negative id": (tiny(model={"type": "BPE", "vocab": {"a": -1}}), "its ids are not within"),
    "an id of 2**60": (tiny(added_tokens=[{"id": 2**60, "content": "x"}]), "its ids are not within"),
    "added tokens without text": (tiny(added_tokens=[{"id": 3}]), "added_tokens are not tokens"),
    "a flag of text": (tiny(added_tokens=[{"id": 3, "content": "x", "lstrip": "no"}]), "added_tokens are not tokens"),
    "merges of numbers": (tiny(model={"type": "BPE", "vocab": {"a": 0}, "merges": [1]}), "merges are not pairs"),
    "merges of three": (
        tiny(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a", "a"]]}),
        "merges are not pairs",
    ),
    "neither bytes nor a fallback": (tiny(pre_tokenizer=None, decoder=None), "neither byte-level tokens nor"),
    "an unknown expression": (
        tiny(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}),
        "a pre-tokenizer that this version does not know",
    ),
    "a pre-tokenizer of text": (tiny(pre_tokenizer="GPT2"), "a pre-tokenizer that"),
    "members that are no list": (tiny(pre_tokenizer={"type": "Sequence", "pretokenizers": 7}), "a pre-tokenizer that"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    body, message = BROKEN[name]
    with pytest.raises((ModelFileError, UnsupportedModelError), match=message) as caught:
        tokenizer_metadata(write(tmp_path, body), 0)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"model": ' + b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json is broken"):
        tokenizer_metadata(tmp_path, 0)
