"""Every request parameter we know, and what becomes of it: honoured, listed as ignored, or refused.

The promise is that nothing is silently ignored. To implement a parameter, move its row from `refused` to `honoured`
and give the protocol type its field; a test holds the two together.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import RequestError
from server.errors import clip
from server.fields.chat import MESSAGE_KEYS, PART_KEYS, Prediction, TextPart, ThinkingSwitch
from server.fields.common import keys_of
from server.fields.generation import JsonObjectFormat, JsonSchemaFormat, NamedSchema, TextFormat
from server.fields.sampling import sampling_keys
from server.fields.tools import CustomDefinition, CustomTool, FunctionDefinition, FunctionTool, offered_tools

Body = Mapping[str, object]
Nested = Callable[[Body], list[str]]  # a body -> the names of what is given inside its fields and has no effect


class Handling(StrEnum):
    HONOURED = "honoured"
    IGNORED = "ignored"  # changes no token; listed in x-ignored-params
    REFUSED = "refused"  # would change the answer and is not done: 400, unless its value asks for nothing


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row; a dotted name reaches into an object."""

    name: str
    handling: Handling
    neutral: tuple[object, ...] = ()  # values that ask for nothing, or for what is done anyway; null always does
    moot: Callable[[Body], bool] | None = None  # another parameter switches this one off: ignored, not refused


def honoured(*names: str) -> list[Parameter]:
    return [Parameter(name, Handling.HONOURED) for name in names]


def ignored(*names: str, neutral: tuple[object, ...] = ()) -> list[Parameter]:
    return [Parameter(name, Handling.IGNORED, neutral) for name in names]


def _asks_for(body: Body, *names: str) -> bool:
    return any(body.get(name) not in (None, 1) for name in names)


def refused(name: str, *neutral: object, moot: Callable[[Body], bool] | None = None) -> Parameter:
    return Parameter(name, Handling.REFUSED, neutral, moot)


SHARED = [
    *honoured("model", "n", "stream", "stream_options", "stream_options.include_usage", "metadata"),
    *honoured(*sampling_keys("completions"), "logit_bias", "allowed_token_ids", "bad_words"),
    *honoured("stop", "stop_token_ids", "include_stop_str_in_output", "max_tokens", "min_tokens", "min_new_tokens"),
    *honoured("ignore_eos", "max_time_ms", "t_max_predict_ms", "skip_special_tokens", "return_token_ids"),
    *honoured("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice"),
    *honoured("guided_grammar", "json_schema", "regex", "grammar", "ebnf"),
    *ignored("user", "service_tier", "safety_identifier", "moderation"),
    *ignored("store", neutral=(False,)),
    *honoured("priority", "cache_salt", "cache_prompt", "cache_report"),
    *ignored("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *ignored("request_id", "session_id", "id_slot", "keep_alive", "stream_interval", "sse_ping_interval"),
    *ignored("stream_options.include_obfuscation", neutral=(False,)),
    *ignored("structured_outputs.disable_fallback", "structured_outputs.disable_any_whitespace"),
    refused("stream_options.continuous_usage_stats", False),
    # several answers
    refused("best_of", 1),
    refused("use_beam_search", False),
    refused("length_penalty", 1),
    # what the logits are turned into
    refused("repeat_last_n", -1, moot=lambda body: not _asks_for(body, "repetition_penalty", "repeat_penalty")),
    refused("typical_p", 1),
    refused("top_n_sigma", 0, -1),
    refused("xtc_probability", 0),
    refused("xtc_threshold", moot=lambda body: not body.get("xtc_probability")),
    refused("dry_multiplier", 0),
    refused("mirostat", 0),
    refused("mirostat_mode", 0),
    refused("dynatemp_range", 0),
    refused("samplers"),
    # where an answer ends
    refused("n_predict"),
    refused("repetition_detection"),
    # the form of the answer
    refused("structured_outputs.structural_tag"),
    refused("structured_outputs.whitespace_pattern"),
    refused("structured_outputs.disable_additional_properties", False),
    refused("format"),
    refused("spaces_between_special_tokens", True, False),  # our tokenizers put none there either way
    # what is reported beside the text
    refused("prompt_logprobs"),
    refused("logprob_token_ids", []),
    refused("return_prompt_text", False),
    refused("return_progress", False),
    refused("timings_per_token", False),
    refused("receipt", False),
    # other servers' own knobs
    refused("truncate_prompt_tokens"),
    refused("n_discard", 0),
    refused("options", {}),
]

CHAT_ONLY = [
    *honoured("messages", "max_completion_tokens", "logprobs", "top_logprobs", "prediction"),
    *honoured("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    *honoured("reasoning_effort", "enable_thinking", "think", "thinking", "thinking_token_budget", "include_reasoning"),
    *honoured("chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *ignored("verbosity"),
    refused("modalities", ["text"], []),
    refused("audio"),
    refused("web_search_options"),
    refused("documents", []),
    # thinking
    refused("reasoning"),
    refused("reasoning_format", "auto", "deepseek"),
    refused("separate_reasoning", True),
    refused("stream_reasoning", True),
    # how the prompt is made
    refused("chat_template"),
    refused("add_special_tokens", False),
    refused("echo", False),
]

COMPLETIONS_ONLY = [
    *honoured("prompt", "echo", "suffix", "logprobs", "add_special_tokens"),
    *ignored("prediction"),
]


def table_of(*rows: Parameter) -> dict[str, Parameter]:
    return {row.name: row for row in rows}


CHAT_PARAMETERS = table_of(*SHARED, *CHAT_ONLY)
COMPLETION_PARAMETERS = table_of(*SHARED, *COMPLETIONS_ONLY)


def ignored_parameters(body: Body, table: Mapping[str, Parameter], nested: Nested | None = None) -> list[str]:
    """The names that will have no effect; raises RequestError at the first one that is refused."""
    given = {name: value for name, value in body.items() if value is not None}
    unknown = [name for name in given if name not in table]
    moot = [row.name for row in table.values() if _has_no_effect(row, given)]
    return moot + unknown + (nested or _unknown_nested_keys)(given)


def _unknown_nested_keys(given: Body) -> list[str]:
    messages = objects_of(given.get("messages"))
    tools = offered_tools(given.get("tools"))
    functions = [*objects_of([tool.get("function") for tool in tools]), *objects_of(given.get("functions"))]
    customs = objects_of([tool.get("custom") for tool in tools])
    output = objects_of([given.get("response_format")])
    predictions = objects_of([given.get("prediction")])
    nested: list[tuple[str, list[dict[str, object]], frozenset[str]]] = [
        ("messages[]", messages, MESSAGE_KEYS),
        (
            "messages[].content[]",
            [part for message in messages for part in objects_of(message.get("content"))],
            PART_KEYS,
        ),
        ("tools[]", tools, keys_of(FunctionTool, CustomTool)),
        ("tools[].function", functions, keys_of(FunctionDefinition)),
        ("tools[].custom", customs, keys_of(CustomDefinition)),
        ("response_format", output, keys_of(TextFormat, JsonObjectFormat, JsonSchemaFormat)),
        ("response_format.json_schema", objects_of([one.get("json_schema") for one in output]), keys_of(NamedSchema)),
        ("thinking", objects_of([given.get("thinking")]), keys_of(ThinkingSwitch)),
        ("prediction", predictions, keys_of(Prediction)),
        (
            "prediction.content[]",
            [part for one in predictions for part in objects_of(one.get("content"))],
            keys_of(TextPart),
        ),
    ]
    return [f"{path}.{key}" for path, objects, known in nested for key in given_keys(objects) if key not in known]


def unknown_subkeys(body: Body, table: Mapping[str, Parameter]) -> list[str]:
    """Keys of objects of which the table knows some keys, but not these."""
    parents = {name.rpartition(".")[0] for name in table if "." in name}
    return [
        f"{parent}.{key}"
        for parent in sorted(parents)
        for key in given_keys(objects_of([_lookup(body, parent)]))
        if f"{parent}.{key}" not in table
    ]


def objects_of(value: object) -> list[dict[str, object]]:
    """The objects of a list; what else it may be is refused elsewhere."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def given_keys(objects: list[dict[str, object]]) -> dict[str, None]:
    """The keys that are not null, each once, in order."""
    return {key: None for item in objects for key, value in item.items() if value is not None}


def _has_no_effect(row: Parameter, body: Body) -> bool:
    value = _lookup(body, row.name)
    if value is None or row.handling is Handling.HONOURED:
        return False
    if any(_same(value, neutral) for neutral in row.neutral):
        return False
    if row.handling is Handling.IGNORED:
        return True
    if row.moot is not None and row.moot(body):
        return True
    raise RequestError(_refusal(row), param=row.name, code="unsupported_parameter")


def _lookup(body: Body, name: str) -> object:
    value: object = body
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _same(value: object, neutral: object) -> bool:
    """Equality that does not take False for 0 (JSON tells them apart) but takes 1.0 for 1."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _refusal(row: Parameter) -> str:
    options = " or ".join(json.dumps(neutral) for neutral in row.neutral)
    advice = f"; leave it out or send {options}." if options else "; leave it out."
    return f"This server does not support '{row.name}' yet, and will not ignore it{advice}"


def strictly(ignored_names: list[str]) -> None:
    """What --strict-params does: refuse what would otherwise be ignored."""
    if ignored_names:
        name = clip(ignored_names[0])
        raise RequestError(
            f"The parameter '{name}' would have no effect, and this server runs with --strict-params; leave it out.",
            param=name,
            code="unsupported_parameter",
        )


def ignored_header(names: list[str]) -> dict[str, str]:
    """The x-ignored-params header. Names come from the client: bounded, and kept to harmless characters."""
    if not names:
        return {}
    shown = [re.sub(r"[^\w.\[\]-]", "?", name[:64], flags=re.ASCII) for name in names[:32]]
    return {"x-ignored-params": ",".join(shown)}
