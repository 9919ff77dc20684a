"""What chat completions and text completions answer: the types behind the OpenAPI document."""

from typing import Literal

from server.fields.common import Answer

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class CachedTokens(Answer):
    cached_tokens: int


class CompletionTokens(Answer):
    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionTokens


class CacheFigures(Answer):
    """What the prefix cache gave for the (first) prompt, and why not more; with `cache_report`."""

    cached_tokens: int
    matched_tokens: int  # leading tokens that an earlier prompt shares
    miss: Literal["whole", "cold", "differs", "evicted", "off"]
    message: int | None  # index of the message that holds the first token that differs


class Timings(Answer):
    """Milliseconds and rates under llama-server's names, and how they compare with the machine's memory."""

    queue_ms: float
    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_n: int  # tokens that were guessed and tried
    draft_n_accepted: int  # those of them that came
    lanes: float  # sequences that shared each pass over the weights
    bytes_per_step: int = 0  # of weights
    bandwidth_percent: float = 0.0
    cache: CacheFigures | None = None


class CalledFunction(Answer):
    name: str
    arguments: str


class CalledTool(Answer):
    """A custom tool, whose one argument is a text."""

    name: str
    input: str


class ToolCall(Answer):
    id: str
    type: Literal["function", "custom"]
    function: CalledFunction | None = None
    custom: CalledTool | None = None


class TopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    content: list[TokenLogprob] | None
    refusal: None


class ChatMessage(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: CalledFunction | None = None


class ChatChoice(Answer):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None = None  # the stop string or token that ended it, or "deadline"
    token_ids: list[int] | None = None


class ChatCompletion(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings
    metadata: dict[str, str] | None = None
    prompt_token_ids: list[int] | None = None


class FunctionDelta(Answer):
    name: str | None = None
    arguments: str | None = None


class TextDelta(Answer):
    name: str | None = None
    input: str | None = None


class ToolCallDelta(Answer):
    """The first of a call has its id, type and name; those after it only more of its arguments."""

    index: int
    id: str | None = None
    type: Literal["function", "custom"] | None = None
    function: FunctionDelta | None = None
    custom: TextDelta | None = None


class ChatDelta(Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: FunctionDelta | None = None


class ChatChunkChoice(Answer):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatChunk(Answer):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    timings: Timings | None = None
    metadata: dict[str, str] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionLogprobs(Answer):
    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TextChoice(Answer):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TextCompletion(Answer):
    """The whole answer, and each chunk of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | None = None
    timings: Timings | None = None
    metadata: dict[str, str] | None = None
