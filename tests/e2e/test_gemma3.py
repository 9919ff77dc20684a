"""The real Gemma 3 270M: its tokens against llama.cpp's, and what it says; a base model, without a chat template.

It never learned the turns of the tuned models, in whose format it repeats the question (in llama.cpp too), so chats are
held in one that it continues sensibly.

Skipped where the model is not in the cache folder: these tests download nothing. `octavo pull gemma3-270m` brings it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.weights.catalogue import cached_models
from engine.weights.files.gguf import GgufFile
from tests.e2e.processes import Server, serving

NAME = "gemma3-270m"
# [text, token ids as plain text, ids with its control tokens where these differ], by llama-cpp-python 0.3.36.
DATA = Path(__file__).parent / "data"
VECTORS = json.loads((DATA / "gemma3_llamacpp_tokens.json").read_text())
# [messages, chat as text, token ids of that text], by the same.
TURN_VECTORS = json.loads((DATA / "gemma3_llamacpp_turns.json").read_text())

pytestmark = pytest.mark.skipif(NAME not in cached_models(), reason=f"{NAME} is not in the cache: run `octavo pull`")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(NAME, "--ctx", "2048", "--chat-template", str(DATA / "questions.jinja")) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as sdk:
        yield sdk


def test_hard_strings_have_the_tokens_of_llama_cpp() -> None:
    with GgufFile.open(cached_models()[NAME]) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    for text, plain, *special in VECTORS:
        assert tokenizer.encode(text) == plain
        assert tokenizer.encode(text, parse_special=True) == (special[0] if special else plain)


def test_it_knows_the_capital_of_france(client: OpenAI) -> None:
    answer = client.completions.create(
        model=NAME, prompt="Q: What is the capital of France?\nA:", temperature=0, max_tokens=24, stop="\n"
    )
    assert answer.choices[0].text == " The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 13  # <bos> too


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([("user", "What is the capital of France?")], " Paris"),
        ([("user", "What is 2 + 2?")], " 2 + 2 = 4"),
        ([("system", "Answer in one word."), ("user", "What color is the sky on a clear day?")], " Blue"),
    ],
)
def test_it_answers_chats_with_the_template_that_it_is_given(
    client: OpenAI, messages: list[tuple[str, str]], answer: str
) -> None:
    reply = client.chat.completions.create(
        model=NAME,
        messages=[{"role": role, "content": content} for role, content in messages],  # type: ignore[misc]
        temperature=0,
        max_tokens=24,
        stop="\n",
    )
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (answer, "stop")


def test_the_end_of_a_turn_ends_an_answer(client: OpenAI) -> None:
    reply = client.completions.create(model=NAME, prompt="Hi", max_tokens=24, logit_bias={"106": 100})
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("", "stop")


def test_chats_in_the_turns_of_the_family_have_the_tokens_of_llama_cpp() -> None:
    with GgufFile.open(cached_models()[NAME]) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    source = (DATA / "gemma3_turns.jinja").read_text("utf-8")
    template = ChatTemplate(
        source, bos_token="<bos>", eos_token="<eos>", control_tokens=tokenizer.control_tokens, user_tokens=[]
    )
    for messages, text, ids in TURN_VECTORS:
        rendered = template.render(messages)
        assert (rendered.text, tokenizer.encode_rendered(rendered)) == (text, ids)


def test_what_the_cache_keeps_of_a_prompt_longer_than_the_window_changes_nothing(client: OpenAI) -> None:
    prompt = " ".join(f"{number} is followed by {number + 1}." for number in range(120))
    first, second = (
        client.completions.create(model=NAME, prompt=prompt, temperature=0, max_tokens=12, logprobs=1) for _ in range(2)
    )
    assert first.usage is not None and second.usage is not None
    assert first.usage.prompt_tokens > 600
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 500
    assert first.choices == second.choices
