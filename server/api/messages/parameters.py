"""Every parameter of the Messages API that we know, and what becomes of it."""

from server.api.messages.body import BLOCK_KEYS
from server.fields.parameters import Body, given_keys, honoured, ignored, objects_of, refused, table_of, unknown_subkeys
from server.fields.sampling import sampling_keys

TOOL_KEYS = frozenset({"name", "description", "input_schema", "strict", "type"})
MESSAGE_KEYS = frozenset({"role", "content"})

PROMPT = [
    *honoured("model", "messages", "system", "tools", "tool_choice", "thinking", "thinking.type"),
    *honoured("thinking.budget_tokens", "thinking.display", "chat_template_kwargs"),
    *honoured("output_config", "output_config.effort", "output_config.format"),
    *ignored("cache_control", "speed", "user_profile_id", "workspace_id", "diagnostics", "output_config.task_budget"),
    refused("context_management"),
    refused("mcp_servers", []),
    refused("output_format"),
]
GENERATION = [
    *honoured("max_tokens", "stop_sequences", "stream", *sampling_keys("messages")),
    *honoured("priority", "cache_salt", "cache_prompt"),
    *ignored("metadata", "service_tier", "inference_geo"),
    refused("container"),
    refused("thread"),  # ignored, it would leave the model without the conversation so far
]

COUNT_PARAMETERS = table_of(*PROMPT)
MESSAGES_PARAMETERS = table_of(*PROMPT, *GENERATION)


def unread_keys(body: Body) -> list[str]:
    """What is inside messages and tools and has no effect."""
    messages = objects_of(body.get("messages"))
    blocks = [block for message in messages for block in objects_of(message.get("content"))]
    within = [block for one in blocks for block in objects_of(one.get("content"))]
    redacted = [block for block in blocks if block.get("type") == "redacted_thinking"]
    return [
        *unknown_subkeys(body, MESSAGES_PARAMETERS),
        *(f"messages[].{key}" for key in given_keys(messages) if key not in MESSAGE_KEYS),
        *(f"messages[].content[].{key}" for key in given_keys([*blocks, *within]) if key not in BLOCK_KEYS),
        *(f"system[].{key}" for key in given_keys(objects_of(body.get("system"))) if key not in BLOCK_KEYS),
        *(["messages[].content[].data"] if redacted else []),
        *(f"tools[].{key}" for key in given_keys(objects_of(body.get("tools"))) if key not in TOOL_KEYS),
    ]
