"""Area tokens: a prompt has the tokens that the model's own tokenizer gives, and one BOS where it wants one.

That texts have the reference's tokens is tested for ten real vocabularies beside the tokenizer (BB-007).
"""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cases.real import HI, KINDS, RealServer, serving, tiny_model
from tests.tiny.models import CHATML, byte_level_tokenizer

WRITES_BOS = "{{ bos_token }}" + CHATML
SEAMS = ["", " ", "  ", "\n", "\t", "\r\n", "x", "é", "😀", "\u0301", "12345678901234567890", "<b>", "مرحبا", "한"]


@pytest.mark.parametrize("writes_it", [True, False])
@pytest.mark.parametrize("wants_it", [True, False])
def test_bos_stands_once_where_template_or_model_want_it(tmp_path: Path, writes_it: bool, wants_it: bool) -> None:
    """BB-008: the template writes BOS and the tokenizer adds it again; in chats, completions and counts alike."""
    tokenizer = byte_level_tokenizer(320) | {
        "tokenizer.ggml.add_bos_token": wants_it,
        "tokenizer.ggml.bos_token_id": 317,  # <|endoftext|>, which ChatML does not write
    }
    template = WRITES_BOS if writes_it else CHATML
    with serving(tiny_model(tmp_path, "plain", tokenizer=tokenizer, chat_template=template)) as server:
        ids = server.prompt_ids(HI)
        chat = server.chat(max_tokens=1)
        counted = server.answer("/v1/chat/completions/input_tokens", {"messages": HI})
        text = server.complete(prompt="Hi", max_tokens=1)
    assert (ids[0] == 317, ids.count(317)) == ((True, 1) if writes_it or wants_it else (False, 0))
    assert chat["usage"]["prompt_tokens"] == counted["input_tokens"] == len(ids)
    assert text["usage"]["prompt_tokens"] == 2 + wants_it


def test_a_prompt_that_writes_bos_itself_has_no_second_one(pieces: RealServer) -> None:
    """BB-008: a raw prompt begins with the BOS that its model wants, unless the caller says to add none."""
    bos = pieces.model.tokenizer.bos_id
    added = pieces.answer("/tokenize", {"prompt": "hello"})["tokens"]
    bare = pieces.answer("/tokenize", {"prompt": "hello", "add_special_tokens": False})["tokens"]
    assert added == [bos, *bare]
    assert pieces.complete(prompt="hello", max_tokens=1)["usage"]["prompt_tokens"] == len(added)
    without = pieces.complete(prompt="hello", max_tokens=1, add_special_tokens=False)
    assert without["usage"]["prompt_tokens"] == len(bare)


def test_tags_are_found_wherever_they_stand(calls: RealServer) -> None:
    """BB-007: an added token alone, at the start, at the end and within text, next to any kind of character."""
    for tag in ("<think>", "</tool_call>", "<|im_end|>"):
        token = calls.token(tag)
        for before in SEAMS:
            for after in SEAMS:
                ids = calls.model.tokenizer.encode(before + tag + after, parse_special=True)
                place = ids.index(token)
                assert calls.model.tokenizer.encode(before) == ids[:place]
                assert calls.model.tokenizer.encode(after) == ids[place + 1 :]


@pytest.mark.parametrize("name", ["plain", "pieces"])
def test_any_text_survives_the_way_to_tokens_and_back(name: str, request: pytest.FixtureRequest) -> None:
    """BB-007: random characters of all planes, runs of spaces, line ends, through /tokenize and /detokenize."""
    server: RealServer = request.getfixturevalue(name)
    chance = random.Random(1)
    for _ in range(60):
        pieces = [chance.choice([*SEAMS, " " * chance.randint(1, 64), _character(chance)]) for _ in range(20)]
        text = "a" + "".join(pieces)  # SentencePiece puts a space before the text, which is taken off again
        answer = server.answer("/tokenize", {"content": text})
        assert answer["count"] == len(answer["tokens"])
        assert server.answer("/detokenize", {"tokens": answer["tokens"]})["content"].removeprefix(" ") == text


def _character(chance: random.Random) -> str:
    while 0xD800 <= (point := chance.randint(1, 0x10FFFF)) <= 0xDFFF:
        pass
    return chr(point)


# Each: a vocabulary, a token that the prompts below do not have, and one whose text the token gets.
TWINS: dict[str, tuple[Mapping[str, object], int, int]] = {
    "later": (byte_level_tokenizer(320), 300, 260),
    "earlier": (byte_level_tokenizer(320), 264, 267),
    "a byte's": (byte_level_tokenizer(320), 300, 5),
    "pieces": (KINDS["pieces"]["tokenizer"], 266, 261),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_text_of_two_tokens_is_served_with_one_line_of_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """NB-36: official files list a text for more than one id; the model is sound, and answers as it did."""
    tokenizer, token, twin = TWINS[name]
    tokens = tokenizer["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    alike = {**tokenizer, "tokenizer.ggml.tokens": [*tokens[:token], tokens[twin], *tokens[token + 1 :]]}
    answers = []
    for each in (tokenizer, alike):
        caplog.clear()
        with serving(tiny_model(tmp_path, "plain", tokenizer=each, vocab=len(tokens))) as server:
            chat = server.chat(temperature=0, max_tokens=40, ignore_eos=True, return_token_ids=True)
            answers.append(chat["choices"][0]["token_ids"])
            texts = [server.answer("/detokenize", {"tokens": [id]})["content"] for id in (token, twin)]
            ids = server.answer("/tokenize", {"content": texts[1], "add_special": False})["tokens"]
            choice = server.chat(structured_outputs={"choice": [f"{texts[1]}!"]}, temperature=0)
    assert answers[0] == answers[1]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (told,) = (warning for warning in warnings if f"ids {min(token, twin)} and {max(token, twin)}" in warning)
    assert "\n" not in told and repr(tokens[twin]) in told
    assert texts[0] == texts[1] != "" and ids[-1] == max(token, twin)
    assert choice["choices"][0]["message"]["content"] == f"{texts[1]}!"
