"""The table of endpoints: one row says all that the server needs to know of one.

Routes, admission, keys, the labels of metrics, the wording of errors, GET /v1/capabilities and the OpenAPI document are
made of the table. A new endpoint is a handler, the types of its body and its answer, and a row. Types of answers stand
here by their names: only the document needs them, and a start that imports them takes longer.
"""

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.routing import Route

from server.api import chat as chat
from server.api import completions as completions
from server.api import docs as docs
from server.api.embeddings import route as embeddings
from server.api.embeddings.route import EMBEDDING_PARAMETERS
from server.api.messages import route as messages
from server.api.messages.body import COUNT_PARAMETERS as MESSAGES_COUNT_PARAMETERS
from server.api.messages.body import MESSAGES_PARAMETERS
from server.api.messages.body import unread_keys as messages_unread_keys
from server.api.messages.errors import messages_words
from server.api.responses import route as responses
from server.api.responses.body import COUNT_PARAMETERS as RESPONSES_COUNT_PARAMETERS
from server.api.responses.body import RESPONSES_PARAMETERS
from server.api.responses.body import unread_keys as responses_unread_keys
from server.api.responses.store import MAX_LIMIT
from server.api.status import handlers as status
from server.api.tokens import handlers as tokens
from server.api.tokens.handlers import DETOKENIZE_PARAMETERS, TOKENIZE_PARAMETERS
from server.fields.parameters import CHAT_PARAMETERS, COMPLETION_PARAMETERS
from server.wire.endpoint import PREFIX, Endpoint, Work, answering

METRICS_PATH = "/metrics"  # a server without metrics has it not
HELLO = [{"role": "user", "content": "What is the capital of France?"}]

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/chat/completions",
        handler=chat.create_chat_completion,
        work=Work.ANSWER,
        group="Generation",
        summary="Answer a chat.",
        answer="server.api.chat_answers:ChatCompletion",
        events="server.api.chat_answers:ChatChunk",
        parameters=CHAT_PARAMETERS,
        example={"model": "smollm2-135m", "messages": HELLO, "temperature": 0},
    ),
    Endpoint(
        method="POST",
        path="/v1/completions",
        handler=completions.create_completion,
        work=Work.ANSWER,
        group="Generation",
        summary="Continue a text.",
        answer="server.api.chat_answers:TextCompletion",
        events="server.api.chat_answers:TextCompletion",
        parameters=COMPLETION_PARAMETERS,
        example={"model": "smollm2-135m", "prompt": "The capital of France is", "max_tokens": 8},
    ),
    Endpoint(
        method="POST",
        path="/v1/embeddings",
        handler=embeddings.create_embeddings,
        work=Work.ANSWER,
        group="Text",
        summary="Texts to vectors of unit length.",
        answer="server.api.embeddings.body:EmbeddingList",
        parameters=EMBEDDING_PARAMETERS,
        example={"model": "smollm2-135m", "input": ["The capital of France is Paris."]},
    ),
    Endpoint(
        method="POST",
        path="/v1/tokenize",
        handler=tokens.tokenize,
        work=Work.TEXT,
        group="Text",
        summary="A text, or a chat, to tokens.",
        answer="server.api.tokens.body:Tokenized",
        parameters=TOKENIZE_PARAMETERS,
        example={"prompt": "The capital of France"},
    ),
    Endpoint(
        method="POST",
        path="/v1/detokenize",
        handler=tokens.detokenize,
        work=Work.TEXT,
        group="Text",
        summary="Tokens to text.",
        answer="server.api.tokens.body:Detokenized",
        parameters=DETOKENIZE_PARAMETERS,
        example={"tokens": [504, 3575, 282, 4649]},
    ),
    Endpoint(
        method="POST",
        path="/v1/apply-template",
        handler=tokens.render,
        work=Work.TEXT,
        group="Text",
        summary="A chat as its model reads it.",
        answer="server.api.tokens.body:RenderedPrompt",
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Endpoint(
        method="POST",
        path="/v1/chat/completions/render",
        handler=tokens.render,
        work=Work.TEXT,
        group="Text",
        summary="A chat as its model reads it, by vLLM's name.",
        answer="server.api.tokens.body:RenderedPrompt",
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Endpoint(
        method="POST",
        path="/v1/chat/completions/input_tokens",
        handler=tokens.count_input_tokens,
        work=Work.TEXT,
        group="Text",
        summary="How many tokens a chat has, and whether it fits the context.",
        answer="server.api.tokens.body:ChatTokenCount",
        parameters=CHAT_PARAMETERS,
        example={"messages": HELLO},
    ),
    Endpoint(
        method="POST",
        path="/v1/messages",
        handler=messages.create_message,
        work=Work.ANSWER,
        group="Generation",
        summary="Answer a chat, in Anthropic's form.",
        answer="server.api.messages.answers:MessageAnswer",
        events="server.api.messages.answers:MessageEvent",
        last_event="a message_stop",
        error="server.api.messages.answers:MessagesErrorReply",
        words=messages_words,
        nested=messages_unread_keys,
        parameters=MESSAGES_PARAMETERS,
        example={"model": "smollm2-135m", "max_tokens": 64, "messages": HELLO},
    ),
    Endpoint(
        method="POST",
        path="/v1/messages/count_tokens",
        handler=messages.count_message_tokens,
        work=Work.TEXT,
        group="Generation",
        summary="Count the tokens of a chat in Anthropic's form.",
        answer="server.api.messages.answers:MessageTokenCount",
        error="server.api.messages.answers:MessagesErrorReply",
        words=messages_words,
        nested=messages_unread_keys,
        parameters=MESSAGES_COUNT_PARAMETERS,
        example={"model": "smollm2-135m", "messages": HELLO},
    ),
    Endpoint(
        method="POST",
        path="/v1/responses",
        handler=responses.create_response,
        work=Work.ANSWER,
        group="Responses",
        summary="Answer a chat as a response that can be gone back to.",
        answer="server.api.responses.answers:ResponseAnswer",
        events="server.api.responses.answers:ResponseEvent",
        last_event="a response.completed, response.incomplete or response.failed",
        nested=responses_unread_keys,
        parameters=RESPONSES_PARAMETERS,
        example={"model": "smollm2-135m", "input": "What is the capital of France?"},
    ),
    Endpoint(
        method="POST",
        path="/v1/responses/input_tokens",
        handler=responses.count_input_tokens,
        work=Work.TEXT,
        group="Responses",
        summary="Count the tokens of a response's input.",
        answer="server.api.responses.answers:InputTokens",
        nested=responses_unread_keys,
        parameters=RESPONSES_COUNT_PARAMETERS,
        example={"input": "What is the capital of France?"},
    ),
    Endpoint(
        method="GET",
        path="/v1/responses/{response_id}",
        handler=responses.read_response,
        work=Work.NONE,
        parameters=None,
        group="Responses",
        summary="A response that is kept.",
        answer="server.api.responses.answers:ResponseAnswer",
        query={"stream": {"type": "boolean", "const": False}},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/responses/{response_id}",
        handler=responses.delete_response,
        work=Work.NONE,
        parameters=None,
        group="Responses",
        summary="Forget a response.",
        answer="server.api.responses.answers:DeletedResponse",
    ),
    Endpoint(
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        handler=responses.cancel_response,
        work=Work.NONE,
        parameters=None,
        group="Responses",
        summary="Refused for every response: none runs in the background.",
        answer="server.api.responses.answers:ResponseAnswer",
    ),
    Endpoint(
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        handler=responses.list_input_items,
        work=Work.NONE,
        parameters=None,
        group="Responses",
        summary="The items that a response answered, newest first.",
        answer="server.api.responses.answers:ItemPage",
        query={
            "order": {"type": "string", "enum": ["asc", "desc"]},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
            "after": {"type": "string"},
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/requests/{id:path}/cancel",
        handler=status.cancel_request,
        work=Work.NONE,
        parameters=None,
        group="Generation",
        summary="End an answer by its id, or by the X-Request-Id of its request.",
        answer="server.api.status.answers:Cancelled",
    ),
    Endpoint(
        method="GET",
        path="/v1/models",
        handler=status.list_models,
        work=Work.NONE,
        parameters=None,
        group="Model",
        summary="The model and its aliases.",
        answer="server.api.status.answers:ModelList",
    ),
    Endpoint(
        method="GET",
        path="/v1/models/{name:path}",
        handler=status.get_model,
        work=Work.NONE,
        parameters=None,
        group="Model",
        summary="The model by one of its names.",
        answer="server.api.status.answers:ModelCard",
    ),
    Endpoint(
        method="GET",
        path="/v1/capabilities",
        handler=status.read_capabilities,
        work=Work.NONE,
        parameters=None,
        group="Model",
        summary="What becomes of each parameter: enforced, ignored or refused.",
        answer="server.api.status.answers:Capabilities",
    ),
    Endpoint(
        method="GET",
        path="/props",
        handler=status.read_props,
        work=Work.NONE,
        parameters=None,
        group="Model",
        summary="Facts of the model, defaults and limits.",
        answer="server.api.status.answers:Props",
    ),
    Endpoint(
        method="GET",
        path="/slots",
        handler=status.read_slots,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="What each lane of the batch is doing.",
        answer="server.api.status.answers:Slot",
        is_list=True,
    ),
    Endpoint(
        method="GET",
        path=METRICS_PATH,
        handler=status.read_metrics,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="Figures for Prometheus.",
        answer="text/plain",
    ),
    Endpoint(
        method="GET",
        path="/health",
        handler=status.health,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="Whether the server is alive; 503 once it is stopping.",
        answer="server.api.status.answers:Health",
        is_open=True,
        may_be_unready="server.api.status.answers:Health",
        answers_head=True,
    ),
    Endpoint(
        method="GET",
        path="/ready",
        handler=status.ready,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="Whether the model is loaded, and how far the load is.",
        answer="server.api.status.answers:Readiness",
        is_open=True,
        may_be_unready="server.api.status.answers:Readiness",
        answers_head=True,
    ),
    Endpoint(
        method="GET",
        path="/",
        handler=status.root,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="What this is.",
        answer="server.api.status.answers:Root",
        is_open=True,
        answers_head=True,
    ),
    Endpoint(
        method="GET",
        path="/docs",
        handler=docs.read_docs,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="This document as a page.",
        answer="text/html",
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        handler=docs.read_openapi,
        work=Work.NONE,
        parameters=None,
        group="Server",
        summary="This document.",
        answer="application/json",
    ),
)


def add_routes(app: Starlette, endpoints: Iterable[Endpoint]) -> None:
    """Add two routes for each row, with the prefix and without; there is nothing at the prefix itself."""
    for row in endpoints:
        plain = row.path.removeprefix(PREFIX)
        for path in (plain,) if plain == "/" else (PREFIX + plain, plain):
            route = Route(path, answering(row))
            route.methods = {*row.methods}  # HEAD too would be taken for GET else
            app.router.routes.append(route)
