"""A bank of bodies that are answered, one list a route, between them with every parameter of note."""

from typing import Any

Json = dict[str, Any]

TOOL: Json = {
    "name": "tool_0",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}},
}
CHAT_TOOL: Json = {"type": "function", "function": {**TOOL, "strict": True}}
MESSAGES_TOOL: Json = {"name": "tool_0", "description": "Looks.", "input_schema": TOOL["parameters"]}
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "tool_0", "arguments": '{"a": 1}'}}
TURNS: list[Json] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Grüße 🙂"}], "name": "me"},
    {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "And now?"},
]
HI: list[Json] = [{"role": "user", "content": "Hi"}]
SAMPLING: Json = {
    **{"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "seed": 7, "n": 2},
    **{"frequency_penalty": 0.5, "presence_penalty": -0.5, "repetition_penalty": 1.1},
    **{"logit_bias": {"100": -100, "7": 5.5}, "allowed_token_ids": [1, 2, 3], "bad_words": ["no"]},
    **{"stop": ["end", "stop"], "stop_token_ids": [5], "include_stop_str_in_output": True},
    **{"max_tokens": 9, "min_tokens": 1, "ignore_eos": True, "max_time_ms": 60_000, "metadata": {"a": "b"}},
    **{"skip_special_tokens": False, "return_token_ids": True, "user": "me", "extra_body": {"cache_prompt": True}},
    **{"priority": -3, "cache_salt": "mine", "cache_report": True},
}
CHATS: list[Json] = [
    {"model": "scripted", "messages": TURNS, **SAMPLING, "logprobs": True, "top_logprobs": 3},
    {
        "model": "scripted",
        "messages": TURNS,
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "tool_0"}},
        "parallel_tool_calls": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    {
        "model": "scripted",
        "messages": HI,
        "tools": [CHAT_TOOL],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "tool_0"}}]},
        },
        "max_completion_tokens": 30,
    },
    {
        "model": "scripted",
        "messages": [*HI, {"role": "assistant", "content": "So"}],
        "continue_final_message": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "stream": True,
    },
    {
        "model": "scripted",
        "messages": HI,
        "functions": [TOOL],
        "function_call": {"name": "tool_0"},
        "structured_outputs": None,
    },
    {
        "model": "scripted",
        "messages": HI,
        "structured_outputs": {"regex": "[ab]{2,5}"},
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": True, "depth": 3},
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "thinking_token_budget": 9,
        "include_reasoning": False,
    },
]
COMPLETIONS: list[Json] = [
    {"model": "scripted", "prompt": ["Hi", "Grüße 🙂"], **SAMPLING, "logprobs": 2, "echo": True},
    {"model": "scripted", "prompt": [1, 2, 3], "stream": True, "stream_options": {"include_usage": True}},
    {"model": "scripted", "prompt": [[1, 2], [3]], "suffix": "end", "add_special_tokens": False, "stop": "end"},
    {"model": "scripted", "prompt": "Hi", "guided_choice": ["a", "b"], "max_tokens": 0, "echo": True},
    {"model": "scripted", "prompt": "Hi", "grammar": 'start: "a"+', "logprobs": 0},
]
MESSAGES: list[Json] = [
    {
        "model": "scripted",
        "max_tokens": 20,
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "tu_1", "name": "tool_0", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "tu_1", "content": "3", "is_error": False},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
        "tools": [MESSAGES_TOOL],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["end"],
        **{"temperature": 0.5, "top_p": 0.9, "top_k": 20, "metadata": {"user_id": "me"}},
    },
    {
        "model": "scripted",
        "max_tokens": 2000,
        "messages": HI,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "output_config": {"effort": "low"},
    },
    {
        "model": "scripted",
        "max_tokens": 20,
        "messages": HI,
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    },
]
RESPONSES: list[Json] = [
    {
        "model": "scripted",
        "instructions": "Be kind.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "tool_0",
                "arguments": '{"a": 1}',
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [{"type": "function", **TOOL}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "tool_0"}]},
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        **{"top_logprobs": 2, "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 20, "metadata": {"a": "b"}},
    },
    {"model": "scripted", "input": "Hi", "stream": True, "store": False, "truncation": "disabled"},
    {
        "model": "scripted",
        "input": "Hi",
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}},
    },
]
EMBEDDINGS: list[Json] = [
    {"model": "scripted", "input": ["Hi", "Grüße 🙂"], "encoding_format": "base64", "dimensions": 8},
    {"model": "scripted", "input": [[1, 2], [3]], "encoding_format": "float", "user": "me"},
    {"model": "scripted", "input": [1, 2, 3], "add_special_tokens": False},
]
TOKENIZE: list[Json] = [
    {"content": "Hi <|im_end|>", "add_special": True, "parse_special": True, "with_pieces": True},
    {"model": "scripted", "prompt": "Grüße 🙂", "add_special_tokens": False, "return_token_strs": True},
    {"messages": TURNS, "tools": [CHAT_TOOL], "chat_template_kwargs": {"enable_thinking": False}},
]
BODIES: dict[str, list[Json]] = {
    "/v1/chat/completions": CHATS,
    "/v1/completions": COMPLETIONS,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/tokenize": TOKENIZE,
    "/v1/detokenize": [{"model": "scripted", "tokens": [72, 105, 200]}, {"tokens": []}],
    "/v1/apply-template": CHATS,
    "/v1/chat/completions/render": CHATS,
    "/v1/chat/completions/input_tokens": CHATS,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses/input_tokens": RESPONSES,
}
