"""Recorded cases of embeddings, tokens and templates."""

from typing import Any

from engine.errors import EngineFaultError
from tests.server.recorded_cases.exchange import Call, Case
from tests.server.scripted.engine import ScriptedModel

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def embedded(name: str, **fields: Any) -> Case:
    call = Call(path="/v1/embeddings", body={"model": "scripted", "input": "abc", **fields})
    return Case(api="embeddings", name=name, calls=(call,))


def failing() -> ScriptedModel:
    model = ScriptedModel()
    model.service.embedding_fault = EngineFaultError("Broken.")
    return model


def tokens(name: str, path: str, **fields: Any) -> Case:
    return Case(api="tokens", name=name, calls=(Call(path=path, body=fields),))


def untemplated() -> ScriptedModel:
    return ScriptedModel(template=None)


CASES: list[Case] = [
    embedded("float"),
    embedded("base64", encoding_format="base64"),
    embedded("several texts", input=["ab", "cd", "é"]),
    embedded("token ids", input=[[97, 98], [99]], encoding_format="base64"),
    embedded("fewer dimensions", dimensions=4),
    embedded("ignored parameters", user="u", novel=1),
    embedded("no input", input=[]),
    embedded("an empty text", input=["a", ""]),
    embedded("too many dimensions", dimensions=4000),
    embedded("an unknown format", encoding_format="hex"),
    embedded("an unknown model", model="ghost"),
    embedded("a text that is too long", input="x" * 5000),
    Case(
        api="embeddings",
        name="the engine fails",
        calls=(Call(path="/v1/embeddings", body={"model": "scripted", "input": "abc"}),),
        model=failing,
    ),
    tokens("tokenize content", "/tokenize", content="ab€"),
    tokens("tokenize a prompt", "/v1/tokenize", prompt="ab€", model="gpt-4o"),
    tokens("tokenize messages", "/tokenize", messages=MESSAGES),
    tokens("tokenize with pieces and names", "/tokenize", content="a€", with_pieces=True, return_token_strs=True),
    tokens("tokenize control tokens", "/tokenize", content="a<|im_end|>"),
    tokens("tokenize control tokens as text", "/tokenize", content="a<|im_end|>", parse_special=False),
    tokens("tokenize nothing", "/tokenize"),
    tokens("tokenize two things", "/tokenize", content="a", prompt="b"),
    tokens("tokenize with an ignored parameter", "/tokenize", content="a", novel=1),
    tokens("tokenize for an unknown model", "/tokenize", content="a", model="ghost"),
    tokens("detokenize", "/detokenize", tokens=[97, 226, 130, 172, 255]),
    tokens("detokenize nothing", "/v1/detokenize", tokens=[]),
    tokens("detokenize an unknown id", "/detokenize", tokens=[1, 2, 5000]),
    tokens("detokenize with an ignored parameter", "/detokenize", tokens=[97], novel=1),
    tokens("apply-template", "/apply-template", messages=MESSAGES, tools=TOOLS, temperature=0),
    tokens("apply-template with an ignored parameter", "/v1/apply-template", messages=MESSAGES, novel=1),
    tokens("apply-template that refuses", "/apply-template", messages=[{"role": "user", "content": "refuse me"}]),
    tokens("render", "/v1/chat/completions/render", messages=MESSAGES, model="scripted"),
    tokens("input_tokens of a chat", "/v1/chat/completions/input_tokens", messages=MESSAGES, model="scripted"),
    Case(
        api="tokens",
        name="apply-template of a model without one",
        calls=(Call(path="/apply-template", body={"messages": MESSAGES}),),
        model=untemplated,
    ),
]
