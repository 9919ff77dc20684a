"""Text to tokens and back, a chat to its prompt, and how many tokens a chat has.

POST /tokenize, /detokenize, /apply-template, /chat/completions/render and /chat/completions/input_tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from engine.text.tokenizer import Tokenizer
from server.api.tokens.body import DetokenizeBody, TemplateBody, TokenizeBody
from server.fields.parameters import CHAT_PARAMETERS, Parameter, honoured, ignored, ignored_header, strictly, table_of
from server.generate.plan import checked_ids
from server.generate.prompts import biggest_message, chat_prompt
from server.served import ServedModel
from server.serving import Serving
from server.wire.body import ignored_of
from server.wire.json_text import answer_of

C = TypeVar("C", bound=TemplateBody)

TOKENIZE_PARAMETERS: dict[str, Parameter] = {
    **CHAT_PARAMETERS,
    **table_of(
        *honoured("content", "prompt", "add_special", "add_special_tokens", "parse_special"),
        *honoured("with_pieces", "return_token_strs"),
    ),
}
DETOKENIZE_PARAMETERS: dict[str, Parameter] = table_of(*honoured("model", "tokens"), *ignored("user"))

AT_ONCE = 4096  # entries of an array that are encoded in one go, so that other threads run in between

Json = dict[str, object]
Defaults = Mapping[str, object]  # of the template's variables


async def tokenize(http: Request, body: TokenizeBody) -> Response:
    return await _of_chat(http, body, _tokenized)


async def detokenize(http: Request, body: DetokenizeBody) -> Response:
    content = await run_in_threadpool(_detokenized, body, _served_model(http, body.model))
    return answer_of(content, headers=ignored_header(ignored_of(http)))


async def render(http: Request, body: TemplateBody) -> Response:
    return await _of_chat(http, body, _rendered)


async def count_input_tokens(http: Request, body: TemplateBody) -> Response:
    return await _of_chat(http, body, _counted)


async def _of_chat(
    http: Request, body: C, answer: Callable[[C, ServedModel, Mapping[str, object]], tuple[bytes, list[str]]]
) -> Response:
    """Let `answer` make the reply of a chat in a thread; it returns the names of what had no effect too."""
    serving: Serving = http.app.state.serving
    options = serving.options
    content, notes = await run_in_threadpool(
        answer, body, _served_model(http, body.model), options.default_template_kwargs
    )
    if options.strict_params:
        strictly(notes)
    return answer_of(content, headers=ignored_header([*ignored_of(http), *notes]))


def _served_model(http: Request, name: str) -> ServedModel:
    """Other servers' clients name no model here."""
    serving: Serving = http.app.state.serving
    return serving.model_named(name) if name else serving.model


def _tokenized(body: TokenizeBody, model: ServedModel, defaults: Defaults) -> tuple[bytes, list[str]]:
    """The answer's bytes, and the names of what had no effect."""
    tokens, notes = _tokens(body, model, defaults)
    tokenizer = model.tokenizer
    answer: Json = {
        "tokens": _array(tokens, lambda token: _piece(token, tokenizer)) if body.with_pieces else tokens,
        "count": len(tokens),
        "max_model_len": model.context_length,
        "token_strs": _array(tokens, tokenizer.token_text) if body.return_token_strs else None,
    }
    return orjson.dumps(answer), notes


def _tokens(body: TokenizeBody, model: ServedModel, defaults: Defaults) -> tuple[list[int], list[str]]:
    if body.text is None:
        prompt = chat_prompt(body, model, defaults)
        return list(prompt.tokens), list(prompt.notes)
    tokenizer = model.tokenizer
    add_bos = body.adds_special and tokenizer.add_bos
    return tokenizer.encode(body.text, add_bos=add_bos, parse_special=body.parse_special is not False), []


def _piece(token: int, tokenizer: Tokenizer) -> Json:
    raw = _written(token, tokenizer)
    try:
        return {"id": token, "piece": raw.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(raw)}


def _written(token: int, tokenizer: Tokenizer) -> bytes:
    """What a token stands for; control tokens, which write nothing, by their names."""
    return tokenizer.token_bytes(token) or tokenizer.token_text(token).encode()


def _array(tokens: Sequence[int], entry: Callable[[int], object]) -> orjson.Fragment:
    parts = (map(entry, tokens[start : start + AT_ONCE]) for start in range(0, len(tokens), AT_ONCE))
    return orjson.Fragment(b"[" + b",".join(orjson.dumps(list(part))[1:-1] for part in parts) + b"]")


def _detokenized(body: DetokenizeBody, model: ServedModel) -> bytes:
    """The text of tokens, under the names of both dialects; U+FFFD stands for what is no whole character."""
    tokenizer = model.tokenizer
    tokens = checked_ids(body.tokens, tokenizer.vocab_size, "tokens")
    text = b"".join(_written(token, tokenizer) for token in tokens).decode(errors="replace")
    return orjson.dumps({"content": text, "prompt": text})


def _rendered(body: TemplateBody, model: ServedModel, defaults: Defaults) -> tuple[bytes, list[str]]:
    """A chat as its model reads it: text and tokens."""
    prompt = chat_prompt(body, model, defaults)
    return orjson.dumps({"prompt": prompt.text, "token_ids": prompt.tokens}), list(prompt.notes)


def _counted(body: TemplateBody, model: ServedModel, defaults: Defaults) -> tuple[bytes, list[str]]:
    """How many tokens a chat has; where they leave no room for an answer, which message has the most."""
    prompt = chat_prompt(body, model, defaults)
    fits = len(prompt.tokens) < model.context_length
    answer = {
        "object": "response.input_tokens",
        "input_tokens": len(prompt.tokens),
        "max_model_len": model.context_length,
        "fits": fits,
        "biggest_message": None if fits else biggest_message(body.messages, model.tokenizer),
    }
    return orjson.dumps(answer), list(prompt.notes)
