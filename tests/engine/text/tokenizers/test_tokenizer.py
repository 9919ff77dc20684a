"""Token ids of real vocabularies equal those of llama.cpp, and control tokens come only from where they may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.tokenizer import RenderedChat, Tokenizer
from tests.engine.text.vocabularies import FILES, load, metadata, model, tiny_bpe_metadata, tiny_spm_metadata, tokenizer

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


@pytest.mark.parametrize("name", FILES)
def test_ids_equal_the_published_vectors(name: str) -> None:
    vectors = model(name)["vectors"]
    assert len(vectors) >= 47 or name == "smollm"
    for text, ids in vectors:
        assert tokenizer(name).encode(text) == ids, text


@pytest.mark.parametrize("name", FILES)
def test_ids_equal_those_of_llama_cpp(name: str) -> None:
    expected = model(name)["llama_cpp"]
    assert len(expected) > 390
    for index, ids in expected:
        assert tokenizer(name).encode(load("texts")[index]) == ids, load("texts")[index]


@pytest.mark.parametrize("name", FILES)
def test_parsed_control_tokens_equal_those_of_llama_cpp(name: str) -> None:
    own = tokenizer(name)
    for index, ids in model(name)["llama_cpp_special"]:
        text = load("texts")[index]
        assert own.encode(text, parse_special=True, add_bos=own.add_bos) == ids, text


@pytest.mark.parametrize(
    ("name", "ends", "bos", "adds_bos"),
    [
        ("smollm", {0, 2, 4}, 1, False),
        ("qwen2", {151643, 151645}, 151643, False),
        ("llama-bpe", {128001, 128009}, 128000, True),
        ("llama-spm", {2}, 1, True),
        ("phi-3", {32000, 32007}, 1, True),
        ("deepseek-coder", {32014}, 32013, True),
    ],
)
def test_a_model_says_what_begins_and_ends_its_turns(name: str, ends: set[int], bos: int, adds_bos: bool) -> None:
    own = tokenizer(name)
    assert (own.end_ids, own.bos_id, own.add_bos) == (frozenset(ends), bos, adds_bos)
    assert own.vocab_size == len(own._vocabulary.tokens)


@pytest.mark.parametrize(("wanted", "end"), [(None, 0), (False, 0), (True, 1)])
def test_a_document_ends_with_eos_where_the_model_wants_it(wanted: bool | None, end: int) -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata(add_eos_token=wanted, add_bos_token=True))
    assert own.encode_document("he") == own.encode_prompt("he") + [own.eos_id] * end


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "qwen35"])  # smollm's vocabulary lacks some bytes
@given(text=TEXTS)
def test_the_bytes_of_the_tokens_are_the_text(name: str, text: str) -> None:
    own = tokenizer(name)
    written = b"".join(map(own.token_bytes, own.encode(text)))
    space = " " if name == "llama-spm" and text else ""
    assert written.decode() == space + text.replace("\u2581", " " if name == "llama-spm" else "\u2581")


@pytest.mark.parametrize("name", FILES)
def test_plain_text_never_gives_a_control_token(name: str) -> None:
    own = tokenizer(name)
    control = {own._vocabulary.ids[text] for text in own.control_tokens}
    for text in sorted(own.control_tokens)[:300]:
        assert not control & set(own.encode(f"a {text}b{text}{text}"))
        assert control & set(own.encode(text, parse_special=True))
    assert all(own.token_bytes(token) == b"" for token in control)


def test_an_end_token_in_a_prompt_is_plain_text_even_where_the_file_calls_it_user_defined() -> None:
    values = tiny_bpe_metadata()
    types = values["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    types[-2] = 4  # <|im_end|>
    own = Tokenizer.from_metadata(values)
    assert own.eos_id not in own.encode("<|im_end|>")


def test_user_defined_tokens_are_found_in_plain_text() -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata())
    think = own.vocab_size - 1
    assert own.encode("hello<think> w") == [*own.encode("hello"), think, *own.encode(" w")]
    assert own.token_bytes(think) == b"<think>"


def test_a_raw_prompt_begins_with_bos_where_the_model_wants_it() -> None:
    with_bos = Tokenizer.from_metadata(tiny_bpe_metadata(add_bos_token=True))
    without = Tokenizer.from_metadata(tiny_bpe_metadata())
    assert with_bos.encode_prompt("hello") == [with_bos.bos_id, *without.encode_prompt("hello")]


def test_a_raw_prompt_may_spell_control_tokens() -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata())
    assert own.encode_prompt("<|im_start|>hello") == [own.bos_id, *own.encode("hello")]


def test_a_rendered_chat_has_one_bos_whether_the_template_writes_it_or_not() -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata(add_bos_token=True))
    expected = [own.bos_id, *own.encode("hello")]
    assert own.encode_rendered(RenderedChat("hello", "\ufdd0")) == expected
    assert own.encode_rendered(RenderedChat("<|im_start|>hello", "\ufdd0")) == expected


def test_guarded_tokens_of_a_rendered_chat_are_plain_text_and_the_scaffold_is_not() -> None:
    own = Tokenizer.from_metadata(tiny_bpe_metadata())
    ids = own.encode_rendered(RenderedChat("<|im_start|>he<\ufdd0|im_end|>llo<\ufdd0think><|im_end|>", "\ufdd0"))
    plain = own._model.encode("he<|im_end|>llo<think>")
    assert ids == [own.bos_id, *plain, own.eos_id]


def test_a_guard_inside_benign_text_changes_no_id() -> None:
    own = tokenizer("smollm")
    text = "<|im_start|>user\nIs 3 < 4? <<|im_end|>\n"
    assert own.encode_rendered(RenderedChat(text.replace("? <", "? <\ufdd0"), "\ufdd0")) == own.encode(
        text, parse_special=True
    )


def test_lone_surrogates_become_replacement_characters() -> None:
    for name in ("smollm", "llama-spm"):
        own = tokenizer(name)
        assert own.encode("a\ud800b") == own.encode("a\ufffdb")
        assert own.encode("\ud83d\ude00") == own.encode("\U0001f600")


def test_the_longest_of_the_leftmost_special_tokens_wins() -> None:
    pieces = {"\n\n": 0.0, "\n\n\n": 0.0, "▁": -1.0, "a": -2.0}
    types = [2, 3, 3, *[6] * 256, 4, 4, 1, 1]
    own = Tokenizer.from_metadata(tiny_spm_metadata(pieces, token_type=types, add_space_prefix=False))
    names = [own.token_text(token) for token in own.encode("a\n\n\n\n\na")]
    assert names == ["a", "\n\n\n", "\n\n", "a"]


def test_user_defined_runs_of_spaces_match_spaces() -> None:
    types = [2, 3, 3, *[6] * 256, 4, 1, 1]
    own = Tokenizer.from_metadata(tiny_spm_metadata({"▁▁": -9.0, "▁": -1.0, "a": -2.0}, token_type=types))
    double = own.token_text(259)
    assert [own.token_text(token) for token in own.encode("a   a")] == ["▁", "a", double, "▁", "▁", "a"]
    assert own.token_bytes(259) == b"  "


def test_phi_3_drops_white_space_after_special_tokens() -> None:
    own = tokenizer("phi-3")
    assert own.encode("<|user|>\n hi<|end|>\n", parse_special=True) == own.encode(
        "<|user|>hi<|end|>", parse_special=True
    )


def test_metadata_may_be_numpy_arrays() -> None:
    import numpy as np

    values = metadata("llama-spm")
    for key, kind in (("token_type", np.int32), ("scores", np.float32)):
        values[f"tokenizer.ggml.{key}"] = np.array(values[f"tokenizer.ggml.{key}"], dtype=kind)
    values["tokenizer.ggml.bos_token_id"] = np.uint32(1)
    own = Tokenizer.from_metadata(values)
    assert own.encode("Hello world") == tokenizer("llama-spm").encode("Hello world")
    assert isinstance(own.bos_id, int)
