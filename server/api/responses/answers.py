"""What the Responses API answers: the types behind the OpenAPI document."""

from typing import Any, Literal

from server.api.chat_answers import CachedTokens, Timings
from server.fields.common import Answer

KeptStatus = Literal["in_progress", "completed", "incomplete"]


class InputTokens(Answer):
    object: Literal["response.input_tokens"]
    input_tokens: int


class DeletedResponse(Answer):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class TextTopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int]


class TextLogprob(TextTopLogprob):
    top_logprobs: list[TextTopLogprob]


class KeptOutputText(Answer):
    type: Literal["output_text"]
    text: str
    annotations: list[dict[str, Any]]  # none are made here
    logprobs: list[TextLogprob]


class KeptInputText(Answer):
    type: Literal["input_text"]
    text: str


class KeptRefusal(Answer):
    type: Literal["refusal"]
    refusal: str


class KeptReasoningText(Answer):
    type: Literal["reasoning_text"]
    text: str


class KeptSummary(Answer):
    type: Literal["summary_text"]
    text: str


class KeptMessage(Answer):
    id: str
    type: Literal["message"]
    status: KeptStatus
    role: Literal["user", "system", "developer", "assistant"]
    content: list[KeptOutputText | KeptInputText | KeptRefusal]


class KeptReasoning(Answer):
    id: str
    type: Literal["reasoning"]
    status: KeptStatus
    summary: list[KeptSummary]
    content: list[KeptReasoningText]


class KeptCall(Answer):
    id: str
    type: Literal["function_call"]
    status: KeptStatus
    call_id: str
    name: str
    arguments: str


class KeptCallOutput(Answer):
    id: str
    type: Literal["function_call_output"]
    status: KeptStatus
    call_id: str
    output: list[KeptInputText]


OutputItem = KeptMessage | KeptReasoning | KeptCall


class ItemPage(Answer):
    object: Literal["list"]
    data: list[OutputItem | KeptCallOutput]
    first_id: str
    last_id: str
    has_more: bool


class InputTokensDetails(CachedTokens):
    cache_write_tokens: int


class OutputTokensDetails(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseFailure(Answer):
    code: Literal["server_error"]
    message: str


class IncompleteDetails(Answer):
    reason: Literal["max_output_tokens"]


class ReasoningSettings(Answer):
    effort: str | None
    summary: None


class ResponseAnswer(Answer):
    """The answer, with what was asked repeated."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningSettings
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    timings: Timings | None = None


class ResponseEvent(Answer):
    """An event of a stream; its type says which of the other fields there are."""

    type: str
    sequence_number: int
    response: ResponseAnswer | None = None
    output_index: int | None = None
    item: OutputItem | None = None
    item_id: str | None = None
    content_index: int | None = None
    part: KeptOutputText | KeptReasoningText | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: list[TextLogprob] | None = None
    name: str | None = None
    arguments: str | None = None
