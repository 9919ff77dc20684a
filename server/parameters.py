"""Every request parameter we know, and what becomes of it: honoured, listed as ignored, or refused.

The promise is that nothing is silently ignored. To implement a parameter, move its row from `refused` to `honoured`
and give the protocol type its field; a test holds the two together.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import RequestError
from server.errors import clip
from server.protocol.chat import MESSAGE_KEYS, PART_KEYS

Body = Mapping[str, object]


class Handling(StrEnum):
    HONOURED = "honoured"
    IGNORED = "ignored"  # changes no token; listed in x-ignored-params
    REFUSED = "refused"  # would change the answer and is not done: 400, unless its value asks for nothing


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row; a dotted name reaches into an object."""

    name: str
    handling: Handling
    neutral: tuple[object, ...] = ()  # values of a refused parameter that ask for nothing; null always does
    moot: Callable[[Body], bool] | None = None  # another parameter switches this one off: ignored, not refused


def honoured(*names: str) -> list[Parameter]:
    return [Parameter(name, Handling.HONOURED) for name in names]


def ignored(*names: str) -> list[Parameter]:
    return [Parameter(name, Handling.IGNORED) for name in names]


def refused(name: str, *neutral: object, moot: Callable[[Body], bool] | None = None) -> Parameter:
    return Parameter(name, Handling.REFUSED, neutral, moot)


SHARED = [
    *honoured("model", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "ignore_eos"),
    *honoured("stream", "stream_options", "stream_options.include_usage"),
    *ignored("user", "metadata", "store", "service_tier", "safety_identifier", "moderation", "prediction"),
    *ignored("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_prompt", "cache_salt"),
    *ignored("priority", "request_id", "session_id", "id_slot", "keep_alive", "stream_interval"),
    *ignored("stream_options.include_obfuscation", "add_special_tokens"),
    refused("stream_options.continuous_usage_stats", False),
    # several answers
    refused("n", 1),
    refused("best_of", 1),
    refused("use_beam_search", False),
    refused("length_penalty", 1),
    # what the logits are turned into
    refused("frequency_penalty", 0),
    refused("presence_penalty", 0),
    refused("repetition_penalty", 1),
    refused("repeat_penalty", 1),
    refused("repeat_last_n", 0),
    refused("logit_bias", {}, []),
    refused("allowed_token_ids", []),
    refused("bad_words", []),
    refused("typical_p", 1),
    refused("top_n_sigma", 0, -1),
    refused("xtc_probability", 0),
    refused("xtc_threshold", moot=lambda body: not body.get("xtc_probability")),
    refused("dry_multiplier", 0),
    refused("mirostat", 0),
    refused("mirostat_mode", 0),
    refused("dynatemp_range", 0),
    refused("samplers"),
    refused("repetition_detection"),
    # where an answer ends
    refused("stop_token_ids", []),
    refused("min_tokens", 0),
    refused("min_new_tokens", 0),
    refused("n_predict"),
    refused("include_stop_str_in_output", False),
    refused("t_max_predict_ms", 0),
    refused("max_time_ms"),
    # the form of the answer
    refused("response_format", {"type": "text"}),
    refused("structured_outputs"),
    refused("guided_json"),
    refused("guided_regex"),
    refused("guided_choice"),
    refused("guided_grammar"),
    refused("grammar", ""),
    refused("json_schema"),
    refused("regex"),
    refused("ebnf"),
    refused("format"),
    # what is reported beside the text
    refused("prompt_logprobs"),
    refused("logprob_token_ids", []),
    refused("return_token_ids", False),
    refused("return_prompt_text", False),
    refused("return_progress", False),
    refused("timings_per_token", False),
    refused("receipt", False),
    refused("skip_special_tokens", True),
    refused("spaces_between_special_tokens", True),
    # other servers' own knobs
    refused("truncate_prompt_tokens"),
    refused("n_discard", 0),
    refused("options", {}),
]

CHAT_ONLY = [
    *honoured("messages", "max_completion_tokens", "chat_template_kwargs"),
    *ignored("verbosity", "parallel_tool_calls"),
    refused("logprobs", False),
    refused("top_logprobs", 0),
    refused("tools", [], moot=lambda body: body.get("tool_choice") == "none"),
    refused("tool_choice", "none", "auto"),
    refused("functions", [], moot=lambda body: body.get("function_call") == "none"),
    refused("function_call", "none", "auto"),
    refused("modalities", ["text"], []),
    refused("audio"),
    refused("web_search_options"),
    refused("documents", []),
    # thinking
    refused("reasoning_effort"),
    refused("reasoning"),
    refused("enable_thinking"),
    refused("thinking"),
    refused("think"),
    refused("thinking_token_budget", -1),
    refused("reasoning_format", "auto"),
    refused("include_reasoning", True),
    refused("separate_reasoning", True),
    refused("stream_reasoning", True),
    # how the prompt is made
    refused("add_generation_prompt", True),
    refused("continue_final_message", False),
    refused("chat_template"),
    refused("echo", False),
]

COMPLETIONS_ONLY = [
    *honoured("prompt"),
    refused("logprobs", False),
    refused("echo", False),
    refused("suffix", ""),
]


def _table(*rows: Parameter) -> dict[str, Parameter]:
    return {row.name: row for row in rows}


CHAT_PARAMETERS = _table(*SHARED, *CHAT_ONLY)
COMPLETION_PARAMETERS = _table(*SHARED, *COMPLETIONS_ONLY)


def ignored_parameters(body: Body, table: Mapping[str, Parameter]) -> list[str]:
    """The names that will have no effect; raises RequestError at the first one that is refused."""
    given = {name: value for name, value in body.items() if value is not None}
    unknown = [name for name in given if name not in table]
    moot = [row.name for row in table.values() if _has_no_effect(row, given)]
    return moot + unknown + _unknown_message_keys(given.get("messages"))


def _unknown_message_keys(messages: object) -> list[str]:
    chat = _objects(messages)
    parts = [part for message in chat for part in _objects(message.get("content"))]
    return [
        *(f"messages[].{key}" for key in _given_keys(chat) if key not in MESSAGE_KEYS),
        *(f"messages[].content[].{key}" for key in _given_keys(parts) if key not in PART_KEYS),
    ]


def _objects(value: object) -> list[dict[str, object]]:
    """The objects of a list; what else it may be is refused elsewhere."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _given_keys(objects: list[dict[str, object]]) -> dict[str, None]:
    """The keys that are not null, each once, in order."""
    return {key: None for item in objects for key, value in item.items() if value is not None}


def _has_no_effect(row: Parameter, body: Body) -> bool:
    value = _lookup(body, row.name)
    if value is None or row.handling is Handling.HONOURED:
        return False
    if row.handling is Handling.IGNORED:
        return True
    if any(_same(value, neutral) for neutral in row.neutral):
        return False
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
    options = " or ".join(repr(neutral) for neutral in row.neutral)
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
