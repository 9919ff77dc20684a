"""Area tokens: a prompt has the tokens that the model's own tokenizer gives, and one BOS where it wants one.

That texts have the reference's tokens is tested for ten real vocabularies beside the tokenizer (BB-007).
"""

import random
from pathlib import Path

import pytest

from tests.cases.real import HI, RealServer, serving, tiny_model
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
