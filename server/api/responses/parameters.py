"""Every parameter of the Responses API that we know, and what becomes of it."""

from server.api.responses.body import ITEM_KEYS, LOGPROBS, PART_KEYS
from server.fields.parameters import Body, given_keys, honoured, ignored, objects_of, refused, table_of, unknown_subkeys
from server.fields.sampling import sampling_keys

TOOL_KEYS = frozenset({"type", "name", "description", "parameters", "strict"})

PROMPT = [
    *honoured("model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "parallel_tool_calls"),
    *honoured("reasoning", "reasoning.effort", "text", "text.format", "truncation", "chat_template_kwargs"),
    # Reasoning is sent in full, and there is no other text to choose.
    *ignored("reasoning.summary", "reasoning.generate_summary", "reasoning.context", "reasoning.mode"),
    *ignored("text.verbosity", "personality"),
    refused("conversation"),
]
GENERATION = [
    *honoured(
        "max_output_tokens", *sampling_keys("responses"), "top_logprobs", "include", "store", "metadata", "stream"
    ),
    # The last event always tells of the usage.
    *honoured("stream_options", "stream_options.include_usage"),
    *honoured("priority", "cache_salt", "cache_prompt"),
    # Only the tools that a server runs by itself are counted by it, and here are none.
    *ignored("max_tool_calls", "stream_options.include_obfuscation", "service_tier", "user", "safety_identifier"),
    *ignored("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "moderation", "access_programs"),
    *ignored("background_options"),
    refused("background", False),
    refused("prompt"),
    refused("context_management", []),
    refused("image"),
]

COUNT_PARAMETERS = table_of(*PROMPT)
RESPONSES_PARAMETERS = table_of(*PROMPT, *GENERATION)


def unread_keys(body: Body) -> list[str]:
    """What is inside items, tools and lists of wishes and has no effect."""
    items = objects_of(body.get("input"))
    parts = [part for item in items for key in ("content", "output", "summary") for part in objects_of(item.get(key))]
    include = body.get("include")
    return [
        *unknown_subkeys(body, RESPONSES_PARAMETERS),
        *(f"input[].{key}" for key in given_keys(items) if key not in ITEM_KEYS),
        *(f"input[].content[].{key}" for key in given_keys(parts) if key not in PART_KEYS),
        *(f"tools[].{key}" for key in given_keys(objects_of(body.get("tools"))) if key not in TOOL_KEYS),
        *(f"include.{name}" for name in (include if isinstance(include, list) else []) if name != LOGPROBS),
        # What does not fit is an error here, and never cut off.
        *(["truncation"] if body.get("truncation") == "auto" else []),
    ]
