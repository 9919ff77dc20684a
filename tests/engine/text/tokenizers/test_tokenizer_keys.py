"""Keys of a tokenizer that change ids are refused, those that nobody knows are told, and so are texts of two tokens."""

import numpy as np
import pytest

from engine.errors import UnsupportedModelError
from engine.text.formats.marks import Marks
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_keys import tokenizer_warnings
from tests.engine.text.vocabularies import CONTROL, UNUSED, USER, tiny_bpe_metadata, tiny_spm_metadata

SPM_PIECES = {"a": -1.0, "b": -2.0, "ab": -3.0, "\u2581": -4.0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remove_extra_whitespaces", True),
        ("precompiled_charsmap", np.ones(8, np.uint8)),
        ("normalizer.lowercase", True),
        ("normalizer.strip_accents", np.bool_(True)),
    ],
)
def test_keys_that_give_other_ids_are_refused_by_name_unless_they_are_off(key: str, value: object) -> None:
    own = Tokenizer.from_metadata(tiny_spm_metadata(SPM_PIECES))
    off = np.zeros(0, np.uint8) if isinstance(value, np.ndarray) else False
    harmless = tiny_spm_metadata(SPM_PIECES, **{key: off})
    assert Tokenizer.from_metadata(harmless).encode("ab  a") == own.encode("ab  a")
    assert tokenizer_warnings(harmless) == []
    for values in (tiny_spm_metadata(SPM_PIECES, **{key: value}), tiny_bpe_metadata(**{key: value})):
        with pytest.raises(UnsupportedModelError, match=rf"tokenizer\.ggml\.{key} is "):
            Tokenizer.from_metadata(values)


def test_known_keys_give_no_warning_and_unknown_ones_are_named_in_one() -> None:
    values = tiny_bpe_metadata(padding_token_id=0, token_type_count=2, add_sep_token=False, unknown_token_id=0)
    assert tokenizer_warnings(values | {"tokenizer.chat_template": "x", "general.name": "y"}) == []
    values |= {"tokenizer.ggml.suppress_tokens": np.array([1]), "tokenizer.chat_template.tool_use": "x"}
    (warning,) = tokenizer_warnings(values)
    assert "tokenizer.chat_template.tool_use, tokenizer.ggml.suppress_tokens" in warning


def test_the_other_tokens_of_infilling_end_an_answer() -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata(fim_pad_token_id=3, fim_rep_token_id=4, fim_sep_token_id=5))
    assert own.end_ids >= {3, 4, 5}


def renamed(values: dict[str, object], token: int, text: str) -> dict[str, object]:
    """The same vocabulary, in which a token has the text of another one."""
    key = "tokenizer.ggml.tokens"
    tokens = values[key]
    assert isinstance(tokens, list)
    return values | {key: [*tokens[:token], text, *tokens[token + 1 :]]}


def test_a_text_of_two_tokens_is_encoded_as_the_last_and_decoded_from_both() -> None:
    values = tiny_bpe_metadata()
    before = Tokenizer.from_metadata(values)
    hell, world = before.encode("hell")[0], before.encode(" w")[0]
    changed = renamed(values, world, "hell")
    own = Tokenizer.from_metadata(changed)
    assert own.encode("hell") == [max(hell, world)]
    assert own.token_bytes(hell) == own.token_bytes(world) == b"hell"
    assert own.encode("hello he") == before.encode("hello he")
    assert b"".join(map(own.token_bytes, own.encode("x w"))) == b"x w"
    (warning,) = tokenizer_warnings(changed)
    assert f"1, first 'hell', ids {hell} and {world};" in warning
    assert tokenizer_warnings(values) == []


def test_a_piece_of_two_tokens_is_encoded_as_the_last_and_decoded_from_both() -> None:
    values = renamed(tiny_spm_metadata(SPM_PIECES), 260, "a")
    own = Tokenizer.from_metadata(values)
    assert own.encode("a")[-1] == 260
    assert own.token_bytes(259) == own.token_bytes(260) == b"a"
    assert own.encode("b")[-1] == 3 + ord("b")  # whose text is gone: its byte takes its place


@pytest.mark.parametrize("place", [259, 260])
def test_of_two_tokens_with_one_text_the_one_in_use_is_encoded_and_both_are_decoded(place: int) -> None:
    """NB-36: an unused token writes nothing and was never trained, and must not hide the one that was."""
    values = renamed(tiny_spm_metadata(SPM_PIECES), 260, "a")
    types = values["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    own = Tokenizer.from_metadata(values | {"tokenizer.ggml.token_type": [*types[:place], UNUSED, *types[place + 1 :]]})
    assert own.encode("a")[-1] == 519 - place
    assert own.token_bytes(259) == own.token_bytes(260) == b"a"


@pytest.mark.parametrize("kind", [1, CONTROL, USER])
def test_an_end_of_turn_ends_under_both_of_its_ids_and_neither_comes_from_text(kind: int) -> None:
    values = tiny_bpe_metadata()
    types = values["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    for token in (0, len(types) - 1):  # before the first of that text and behind it
        changed = renamed(values, token, "<|im_end|>")
        changed["tokenizer.ggml.token_type"] = [*types[:token], kind, *types[token + 1 :]]
        own = Tokenizer.from_metadata(changed)
        first = len(types) - 2
        assert own.end_ids >= {token, first}
        assert own.token_bytes(token) == own.token_bytes(first) == b""
        assert not {token, first} & set(own.encode("<|im_end|>"))
        assert own.encode("<|im_end|>", parse_special=True) == [max(token, first)]


def test_a_mark_is_one_under_both_of_its_ids() -> None:
    values = tiny_bpe_metadata()
    own = Tokenizer.from_metadata(renamed(values, 0, "<think>"))
    marks = Marks(["<think>"], own)
    last = own.vocab_size - 1
    assert marks.ids == {0, last}
    assert marks.character(0) == marks.character(last)
