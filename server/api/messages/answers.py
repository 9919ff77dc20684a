"""What the Messages API answers: the types behind the OpenAPI document."""

from typing import Any, Literal

from server.api.chat_answers import Timings
from server.fields.common import Answer

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class ThreadRefusal(Answer):
    error_code: Literal["thread_unsupported_request"]


class MessagesErrorDetails(Answer):
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "overloaded_error",
        "api_error",
    ]
    message: str
    details: ThreadRefusal | None = None


class MessagesErrorReply(Answer):
    type: Literal["error"]
    error: MessagesErrorDetails


class MessageTokenCount(Answer):
    input_tokens: int


class ThinkingTokens(Answer):
    thinking_tokens: int


class MessageUsage(Answer):
    """The prompt has input_tokens and cache_read_input_tokens together."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens


class WrittenText(Answer):
    type: Literal["text"]
    text: str


class WrittenThinking(Answer):
    type: Literal["thinking"]
    thinking: str
    signature: str


class WrittenToolUse(Answer):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


WrittenBlock = WrittenText | WrittenThinking | WrittenToolUse


class MessageAnswer(Answer):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[WrittenBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    timings: Timings | None = None


class TextDelta(Answer):
    type: Literal["text_delta"]
    text: str


class ThinkingDelta(Answer):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(Answer):
    type: Literal["signature_delta"]
    signature: str


class InputJsonDelta(Answer):
    type: Literal["input_json_delta"]
    partial_json: str


class StopDelta(Answer):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageEvent(Answer):
    """An event of a stream; its type says which of the other fields there are."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    index: int | None = None
    message: MessageAnswer | None = None
    content_block: WrittenBlock | None = None
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | StopDelta | None = None
    usage: MessageUsage | None = None
    timings: Timings | None = None
    error: MessagesErrorDetails | None = None
