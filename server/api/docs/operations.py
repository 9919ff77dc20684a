"""Every operation of the API in one table: what it takes, what it answers, which parameters it knows.

The OpenAPI document and GET /v1/capabilities are made of it; a test holds it against the routes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from server.api.chat.answers import ChatChunk, ChatCompletion, ErrorReply, Root, TextCompletion
from server.api.chat.body import ChatBody
from server.api.completions.body import CompletionBody
from server.api.embeddings.body import EmbeddingList, EmbeddingsBody
from server.api.embeddings.reply import EMBEDDING_PARAMETERS
from server.api.messages.answers import MessageAnswer, MessageEvent, MessagesErrorReply, MessageTokenCount
from server.api.messages.body import MessagesBody
from server.api.messages.body import PromptBody as MessagesPrompt
from server.api.messages.parameters import COUNT_PARAMETERS as MESSAGES_COUNT_PARAMETERS
from server.api.messages.parameters import MESSAGES_PARAMETERS
from server.api.responses.answers import DeletedResponse, InputTokens, ItemPage, ResponseAnswer, ResponseEvent
from server.api.responses.body import CountBody, ResponsesBody
from server.api.responses.pages import MAX_LIMIT
from server.api.responses.parameters import COUNT_PARAMETERS as RESPONSES_COUNT_PARAMETERS
from server.api.responses.parameters import RESPONSES_PARAMETERS
from server.api.status.answers import Cancelled, Capabilities, Health, Props, Readiness, Slot
from server.api.status.models_answers import ModelCard, ModelList
from server.api.tokens.body import (
    ChatTokenCount,
    DetokenizeBody,
    Detokenized,
    RenderedPrompt,
    TemplateBody,
    TokenizeBody,
    Tokenized,
)
from server.api.tokens.tokens import DETOKENIZE_PARAMETERS, TOKENIZE_PARAMETERS
from server.fields.parameters import CHAT_PARAMETERS, COMPLETION_PARAMETERS, Parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: Literal["get", "post", "delete"]
    path: str
    group: str
    summary: str
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | str  # a model, or the media type of what is not JSON
    is_list: bool = False  # the answer is an array of it
    events: type[BaseModel] | None = None  # what each event of a stream holds
    parameters: Mapping[str, Parameter] | None = None
    is_open: bool = False  # needs no API key
    may_be_unready: type[BaseModel] | None = None  # what 503 answers with, where that is no error
    example: Mapping[str, Any] | None = None
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the schema of each optional argument
    error: type[BaseModel] = ErrorReply
    last_event: str = "[DONE]"  # of a stream


HELLO = [{"role": "user", "content": "What is the capital of France?"}]

OPERATIONS = (
    Operation(
        method="post",
        path="/v1/chat/completions",
        group="Generation",
        summary="Answer a chat.",
        body=ChatBody,
        answer=ChatCompletion,
        events=ChatChunk,
        parameters=CHAT_PARAMETERS,
        example={"model": "smollm2-135m", "messages": HELLO, "temperature": 0},
    ),
    Operation(
        method="post",
        path="/v1/completions",
        group="Generation",
        summary="Continue a text.",
        body=CompletionBody,
        answer=TextCompletion,
        events=TextCompletion,
        parameters=COMPLETION_PARAMETERS,
        example={"model": "smollm2-135m", "prompt": "The capital of France is", "max_tokens": 8},
    ),
    Operation(
        method="post",
        path="/v1/embeddings",
        group="Text",
        summary="Texts to vectors of unit length.",
        body=EmbeddingsBody,
        answer=EmbeddingList,
        parameters=EMBEDDING_PARAMETERS,
        example={"model": "smollm2-135m", "input": ["The capital of France is Paris."]},
    ),
    Operation(
        method="post",
        path="/v1/tokenize",
        group="Text",
        summary="A text, or a chat, to tokens.",
        body=TokenizeBody,
        answer=Tokenized,
        parameters=TOKENIZE_PARAMETERS,
        example={"prompt": "The capital of France"},
    ),
    Operation(
        method="post",
        path="/v1/detokenize",
        group="Text",
        summary="Tokens to text.",
        body=DetokenizeBody,
        answer=Detokenized,
        parameters=DETOKENIZE_PARAMETERS,
        example={"tokens": [504, 3575, 282, 4649]},
    ),
    Operation(
        method="post",
        path="/v1/apply-template",
        group="Text",
        summary="A chat as its model reads it.",
        body=TemplateBody,
        answer=RenderedPrompt,
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Operation(
        method="post",
        path="/v1/chat/completions/render",
        group="Text",
        summary="A chat as its model reads it, by vLLM's name.",
        body=TemplateBody,
        answer=RenderedPrompt,
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Operation(
        method="post",
        path="/v1/chat/completions/input_tokens",
        group="Text",
        summary="How many tokens a chat has, and whether it fits the context.",
        body=TemplateBody,
        answer=ChatTokenCount,
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Operation(
        method="post",
        path="/v1/messages",
        group="Generation",
        summary="Answer a chat, in Anthropic's form.",
        body=MessagesBody,
        answer=MessageAnswer,
        events=MessageEvent,
        last_event="a message_stop",
        error=MessagesErrorReply,
        parameters=MESSAGES_PARAMETERS,
        example={"model": "smollm2-135m", "max_tokens": 64, "messages": HELLO},
    ),
    Operation(
        method="post",
        path="/v1/messages/count_tokens",
        group="Generation",
        summary="Count the tokens of a chat in Anthropic's form.",
        body=MessagesPrompt,
        answer=MessageTokenCount,
        error=MessagesErrorReply,
        parameters=MESSAGES_COUNT_PARAMETERS,
        example={"model": "smollm2-135m", "messages": HELLO},
    ),
    Operation(
        method="post",
        path="/v1/responses",
        group="Responses",
        summary="Answer a chat as a response that can be gone back to.",
        body=ResponsesBody,
        answer=ResponseAnswer,
        events=ResponseEvent,
        last_event="a response.completed, response.incomplete or response.failed",
        parameters=RESPONSES_PARAMETERS,
        example={"model": "smollm2-135m", "input": "What is the capital of France?"},
    ),
    Operation(
        method="post",
        path="/v1/responses/input_tokens",
        group="Responses",
        summary="Count the tokens of a response's input.",
        body=CountBody,
        answer=InputTokens,
        parameters=RESPONSES_COUNT_PARAMETERS,
        example={"input": "What is the capital of France?"},
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}",
        group="Responses",
        summary="A response that is kept.",
        answer=ResponseAnswer,
        query={"stream": {"type": "boolean", "const": False}},
    ),
    Operation(
        method="delete",
        path="/v1/responses/{response_id}",
        group="Responses",
        summary="Forget a response.",
        answer=DeletedResponse,
    ),
    Operation(
        method="post",
        path="/v1/responses/{response_id}/cancel",
        group="Responses",
        summary="Refused for every response: none runs in the background.",
        answer=ResponseAnswer,
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}/input_items",
        group="Responses",
        summary="The items that a response answered, newest first.",
        answer=ItemPage,
        query={
            "order": {"type": "string", "enum": ["asc", "desc"]},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
            "after": {"type": "string"},
        },
    ),
    Operation(
        method="post",
        path="/v1/requests/{id}/cancel",
        group="Generation",
        summary="End an answer by its id, or by the X-Request-Id of its request.",
        answer=Cancelled,
    ),
    Operation(
        method="get",
        path="/v1/models",
        group="Model",
        summary="The model and its aliases.",
        answer=ModelList,
    ),
    Operation(
        method="get",
        path="/v1/models/{name}",
        group="Model",
        summary="The model by one of its names.",
        answer=ModelCard,
    ),
    Operation(
        method="get",
        path="/v1/capabilities",
        group="Model",
        summary="What becomes of each parameter: enforced, ignored or refused.",
        answer=Capabilities,
    ),
    Operation(
        method="get",
        path="/props",
        group="Model",
        summary="Facts of the model, defaults and limits.",
        answer=Props,
    ),
    Operation(
        method="get",
        path="/slots",
        group="Server",
        summary="What each lane of the batch is doing.",
        answer=Slot,
        is_list=True,
    ),
    Operation(
        method="get",
        path="/metrics",
        group="Server",
        summary="Figures for Prometheus.",
        answer="text/plain",
    ),
    Operation(
        method="get",
        path="/health",
        group="Server",
        summary="Whether the server is alive; 503 once it is stopping.",
        answer=Health,
        is_open=True,
        may_be_unready=Health,
    ),
    Operation(
        method="get",
        path="/ready",
        group="Server",
        summary="Whether the model is loaded, and how far the load is.",
        answer=Readiness,
        is_open=True,
        may_be_unready=Readiness,
    ),
    Operation(method="get", path="/", group="Server", summary="What this is.", answer=Root, is_open=True),
    Operation(method="get", path="/docs", group="Server", summary="This document as a page.", answer="text/html"),
    Operation(method="get", path="/openapi.json", group="Server", summary="This document.", answer="application/json"),
)
