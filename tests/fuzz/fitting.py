"""Bodies that their schema allows, made to keep the rules between fields too, so that most of them are answered."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

FORMS = (
    *("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("json_schema", "regex", "grammar", "ebnf"),
)
TOKEN_LISTS = ("stop_token_ids", "allowed_token_ids", "tokens")
RAW_ONLY = ("add_special", "add_special_tokens", "parse_special")
NOT_OF_A_CHAT = (*RAW_ONLY, "model", "content", "prompt", "messages", "with_pieces", "return_token_strs")


def fitted(path: str, body: Json, known: frozenset[str], *, model: str, tokens: int, previous: str) -> Json:
    """The body for a model of this name with so many tokens; `previous` is a response to go on from.

    Only the fields that are `known` are changed: others of the same names may hold anything.
    """
    unknown = {name: value for name, value in body.items() if name not in known}
    body = {name: value for name, value in body.items() if name in known and value is not None}
    if "model" in body:
        body["model"] = model
    if "/tokenize" in path:
        body = _of_one_source(body)
    _fit_values(body, tokens)
    _fit_pairs(body)
    _fit_tools(body)
    if "previous_response_id" in body:
        body["previous_response_id"] = previous
    if "messages" in body:
        put_calls_first = _anthropic_calls if "/messages" in path else _chat_calls
        body["messages"] = [*put_calls_first(body["messages"]), *body["messages"]]
    if path.startswith("/v1/responses"):
        body["input"] = _with_calls(body.get("input") or "Hi")
    return {**unknown, **body}


def _of_one_source(body: Json) -> Json:
    if "messages" in body:
        return {name: value for name, value in body.items() if name not in (*RAW_ONLY, "content", "prompt")}
    raw = {name: value for name, value in body.items() if name in NOT_OF_A_CHAT}
    source = "prompt" if "prompt" in body else "content"
    return {"content": "Hi", **raw} if source == "content" else {**raw, "content": None}


def _fit_values(body: Json, tokens: int) -> None:
    for name in TOKEN_LISTS:
        if name in body:
            body[name] = [token % tokens for token in body[name]]
    if isinstance(body.get("logit_bias"), dict):
        body["logit_bias"] = {str(int(token) % tokens): bias for token, bias in body["logit_bias"].items()}
    for name in ("prompt", "input"):
        if isinstance(body.get(name), list):
            body[name] = [_fit_prompt(one, tokens) for one in body[name]]
    if body.get("prompt") == "":
        body["prompt"] = "Hi"
    for name, most in (("n", 2), ("dimensions", 16), ("min_tokens", 1), ("min_new_tokens", 1)):
        if name in body:
            body[name] = min(body[name], most)
    for name in ("guided_json", "json_schema"):
        if isinstance(body.get(name), str):
            body[name] = '{"type": "object"}'
    if "chat_template_kwargs" in body:
        body["chat_template_kwargs"] = {
            f"argument_{place}": value for place, value in enumerate(body["chat_template_kwargs"].values())
        }


def _fit_prompt(one: Any, tokens: int) -> Any:
    match one:
        case int() | float():
            return int(one) % tokens
        case [*ids]:
            return [int(token) % tokens for token in ids]
        case _:
            return one or "Hi"


def _fit_pairs(body: Json) -> None:
    """Fields that need each other, or exclude each other."""
    if "stream_options" in body:
        body["stream"] = True
    if body.get("top_logprobs"):
        body["logprobs"] = True
    if body.get("continue_final_message") and body["messages"][-1].get("role") != "assistant":
        del body["continue_final_message"]
    if body.get("continue_final_message"):
        body.pop("add_generation_prompt", None)
    if "prompt" in body and body.get("max_tokens") == 0:
        body["max_tokens"] = 1
    if body.get("stream") and body.get("echo"):
        body.pop("logprobs", None)
    for form in [form for form in FORMS if form in body][1:]:
        del body[form]


def _fit_tools(body: Json) -> None:
    """Tools of different names, and a choice that names one of them."""
    if body.get("tools"):
        body.pop("functions", None)
    tools = body.get("functions") or body.get("tools") or []
    for place, tool in enumerate(tools):
        inner = tool.get("function")
        (inner if isinstance(inner, dict) else tool)["name"] = f"tool_{place}"
    if any(form in body for form in FORMS) or body.get("text") or body.get("output_config"):
        for name in ("tools", "functions"):
            body.pop(name, None)
        tools = []
    for name in ("tool_choice", "function_call"):
        if name in body and not tools:
            del body[name]
        for choice in _named_choices(body.get(name)):
            choice["name"] = "tool_0"


def _named_choices(choice: Any) -> Iterator[Json]:
    match choice:
        case {"allowed_tools": {"tools": [*tools]}} | {"tools": [*tools]}:
            for tool in tools:
                yield from _named_choices(tool)
        case {"function": {"name": _}}:
            yield choice["function"]
        case {"name": _}:
            yield choice


def _chat_calls(messages: list[Json]) -> list[Json]:
    """The calls that the tools' messages answer."""
    ids = {message["tool_call_id"] for message in messages if message.get("role") == "tool"}
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in sorted(ids)]
    return [{"role": "assistant", "tool_calls": calls}] if calls else []


def _anthropic_calls(messages: list[Json]) -> list[Json]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    ids = {block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"}
    calls = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in sorted(ids)]
    return [{"role": "assistant", "content": calls}] if calls else []


def _with_calls(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    ids = {item["call_id"] for item in items if isinstance(item, dict) and item.get("type") == "function_call_output"}
    return [*({"type": "function_call", "call_id": name, "name": "f"} for name in sorted(ids)), *items]
