"""Normalizers, pre-tokenizers and added tokens' flags give the ids that the library `tokenizers` gives."""

import json
import unicodedata
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer

from engine.errors import UnsupportedModelError
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_json import tokenizer_metadata
from engine.text.tokenizer_rules import RULES_KEY, TokenizerRules
from tests.engine.text.tokenizers.tokenizer_files import both, byte_fallback, byte_level

PREPEND = {"type": "Prepend", "prepend": "\u2581"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
NORMALIZERS: dict[str, Any] = {
    "none": None,
    "an empty sequence": {"type": "Sequence", "normalizers": []},
    **{kind: {"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")},
    "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "Strip on the right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "Prepend": {"type": "Prepend", "prepend": "x"},
    "Replace": {"type": "Replace", "pattern": {"String": "ab"}, "content": "c "},
    "BERT's": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "a sequence": {
        "type": "Sequence",
        "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}],
    },
}
SPACE_RULES: dict[str, tuple[Any, Any]] = {
    "Llama 2's": ({"type": "Sequence", "normalizers": [PREPEND, SPACES]}, None),
    "Gemma's": (
        SPACES,
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    ),
    "spaces alone": (SPACES, None),
    "nothing": (None, None),
    "NFKC before": ({"type": "Sequence", "normalizers": [{"type": "NFKC"}, PREPEND, SPACES]}, None),
    **{
        f"Metaspace {scheme}{', split' if split else ''}": (
            None,
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split},
        )
        for scheme in ("always", "first", "never")
        for split in (True, False)
    },
    "digits apart": (SPACES, {"type": "Digits", "individual_digits": True}),
}
ADDED: dict[str, dict[str, bool]] = {
    "<|s|>": {"special": True},
    "<|ls|>": {"special": True, "lstrip": True},
    "<|rs|>": {"special": True, "rstrip": True},
    "<|sw|>": {"special": True, "single_word": True},
    "<u>": {},
    "<ul>": {"lstrip": True},
    "<ur>": {"rstrip": True, "single_word": True},
    "ab": {"single_word": True},
    "<n>": {"normalized": True},
    "<nl>": {"normalized": True, "lstrip": True, "rstrip": True},
    "bc": {"normalized": True, "single_word": True},
    "  ": {},
    "Xy": {"normalized": True},
}
PIECES = [
    *ADDED,
    "\U00031350",
    *"abcfixyzABX19<>|.,",
    " ",
    "  ",
    "\u2581",
    "\n",
    "\r\n",
    "\t",
    "\u2009",
    "\u3000",
    "\x1c",
    "\u200d",
]
PIECES += [
    "\u00e9",
    "e\u0301",
    "\u0301",
    "\u0338",
    "\ufb01",
    "\uff21",
    "\uff1c\uff53\uff1e",
    "\ud55c",
    "\u1112\u1161\u11ab",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join)


@cache
def made(kind: str, name: str) -> tuple[LibraryTokenizer, Tokenizer]:
    if kind == "byte level":
        body = byte_level(ADDED, normalizer=NORMALIZERS[name])
    else:
        normalizer, pre_tokenizer = SPACE_RULES[name]
        body = byte_fallback(ADDED, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    with TemporaryDirectory() as folder:
        return both(body, Path(folder))


@pytest.mark.parametrize("name", NORMALIZERS)
@settings(max_examples=80)
@given(text=TEXTS)
def test_a_byte_level_vocabulary_gives_the_librarys_ids(name: str, text: str) -> None:
    library, own = made("byte level", name)
    assert own.encode(text, parse_special=True) == library.encode(text).ids


@pytest.mark.parametrize("name", SPACE_RULES)
@settings(max_examples=80)
@given(text=TEXTS)
def test_a_vocabulary_with_byte_fallback_gives_the_librarys_ids(name: str, text: str) -> None:
    library, own = made("byte fallback", name)
    assert own.encode(text, parse_special=True) == library.encode(text).ids


@pytest.mark.parametrize("name", NORMALIZERS)
@settings(max_examples=50)
@given(text=TEXTS)
def test_plain_text_never_gives_a_control_token(name: str, text: str) -> None:
    _, own = made("byte level", name)
    control = {own.encode(token, parse_special=True)[0] for token in own.control_tokens}
    assert not control & set(own.encode(text))


WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})  # NFKC makes ASCII of these


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize(
    "forged", ["<|s|>", "<|S|>", "<|s|>".translate(WIDE), " <|rs|>  <|ls|> ", "<|s\u0301|>", "<n>"]
)
def test_messages_hold_no_special_tokens_whatever_the_normalizer(name: str, forged: str) -> None:
    _, own = made("byte level", name)
    source = "<|s|>{{ messages[0].content }}<|rs|> <n>"
    template = ChatTemplate(
        source, bos_token="", eos_token="", control_tokens=own.control_tokens, user_tokens=own.user_tokens
    )
    ids = own.encode_rendered(template.render([{"role": "user", "content": f"a {forged} b"}]))
    control = [own.token_text(token) for token in ids if own.token_text(token) in own.control_tokens]
    assert control == ["<|s|>", "<|rs|>"]
    assert [own.token_text(token) for token in ids].count("<n>") <= 1


def test_decomposed_text_is_composed_where_the_file_says_so(tmp_path: Path) -> None:
    composed = "Việt Nam, Résumé, 한국어"
    _, own = both(byte_level({}, normalizer={"type": "NFC"}), tmp_path)
    decomposed = unicodedata.normalize("NFD", composed)
    assert own.encode(decomposed) == own.encode(composed)
    assert b"".join(map(own.token_bytes, own.encode(decomposed))).decode() == composed


def test_a_file_that_changes_nothing_has_no_rules(tmp_path: Path) -> None:
    both(byte_level({"<|s|>": {"special": True}}), tmp_path)
    assert RULES_KEY not in tokenizer_metadata(tmp_path, 0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an expression in a normalizer": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
        r"a normalizer .*\(a\+\)\+\$",
    ),
    "a table of characters": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": ""}]}},
        "a normalizer .*Precompiled",
    ),
    "a normalizer of another kind": ({"normalizer": {"type": "Martian"}}, "a normalizer .*Martian"),
    "a Replace without content": ({"normalizer": {"type": "Replace"}}, "a normalizer that the library"),
    "an unknown part": ({"martian": 7}, "has martian: 7"),
    "BERT's frame": ({"post_processor": {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}}, "has post_proc"),
    "two tokens in front": (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "a"}}, {"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}],
            }
        },
        "has post_processor",
    ),
    "a normalizer of text": ({"normalizer": "NFC"}, 'has normalizer: "NFC"'),
    "a post-processor of text": ({"post_processor": ["x"]}, "has post_processor: "),
    "a token of several ids in front": (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"a": {"id": "a", "ids": [1, 2], "tokens": ["a", "b"]}},
            }
        },
        "has post_processor",
    ),
    "a decoder of another kind": ({"decoder": {"type": "CTC", "pad_token": "x"}}, "has decoder: .*CTC"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, message = REFUSED[name]
    body = byte_level({"<|s|>": {"special": True}}, **changes)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        write_and_read(tmp_path, body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("dropout", 0.1), ("continuing_subword_prefix", "##"), ("end_of_word_suffix", "</w>"), ("martian", None)],
)
def test_options_of_the_model_that_give_other_ids_are_refused(tmp_path: Path, key: str, value: object) -> None:
    body = byte_level({})
    body["model"][key] = value
    with pytest.raises(UnsupportedModelError, match=rf"has model\.{key}: "):
        write_and_read(tmp_path, body)


def test_an_unknown_token_for_missing_bytes_is_refused(tmp_path: Path) -> None:
    body = byte_level({})
    del body["model"]["vocab"]["Ĉ"]
    body["model"]["unk_token"] = "a"
    with pytest.raises(UnsupportedModelError, match=r"has model\.unk_token: "):
        write_and_read(tmp_path, body)


def test_flags_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    body = byte_level({"<u>": {"martian": True}})
    with pytest.raises(UnsupportedModelError, match="has added_tokens '<u>' martian: true"):
        write_and_read(tmp_path, body)


def test_a_special_token_that_the_normalizer_rewrites_is_refused(tmp_path: Path) -> None:
    body = byte_level({"<|S|>": {"special": True, "normalized": True}}, normalizer={"type": "Lowercase"})
    with pytest.raises(UnsupportedModelError, match=r"its special token '<\|S\|>'"):
        write_and_read(tmp_path, body)


@pytest.mark.parametrize("text", ["", "7", "[]", '{"normalizer": 7}', '{"martian": 1}', '{"added_tokens": {"x": [1]}}'])
def test_rules_that_are_not_ours_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedModelError):
        rules = TokenizerRules.read(text)
        rules.build_normalizer()


def write_and_read(folder: Path, body: dict[str, Any]) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(body))
    return Tokenizer.from_metadata(tokenizer_metadata(folder, 0))
