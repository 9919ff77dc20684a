"""What a response says of its request, and the request's items as they are kept and listed."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from server.api.responses.body import (
    AnyItem,
    FunctionCall,
    FunctionCallOutput,
    MessageItem,
    PlainChoice,
    ReasoningItem,
    Refusal,
    ResponsesBody,
)
from server.api.responses.body import ContentPart as Part
from server.generate.answer import Json
from server.generate.chat_form import given
from server.served import ServedModel


def response_head(body: ResponsesBody, response_id: str, model: ServedModel) -> Json:
    """The fields of a response that are known before its answer."""
    sampling = replace(model.sampling, **body.stated_sampling)
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "model": model.id,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "store": body.store,
        "temperature": sampling.temperature,
        "text": {"format": given(**body.text.format.model_dump(by_alias=True))},
        "tool_choice": _choice(body),
        "tools": [_tool(tool.model_dump()) for tool in body.tools],
        "top_logprobs": body.top_logprobs,
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }


def _choice(body: ResponsesBody) -> object:
    choice = body.tool_choice
    return choice.type if isinstance(choice, PlainChoice) else choice.model_dump()


def _tool(tool: Json) -> Json:
    return {**tool, "strict": bool(tool["strict"])}


def kept_items(items: Sequence[AnyItem]) -> list[Json]:
    """The items as GET /v1/responses/{id}/input_items lists them."""
    return [_kept(item) for item in items]


def _kept(item: AnyItem) -> Json:
    own: Json
    match item:
        case MessageItem():
            own = {"role": item.role, "content": [_part(part, item.role == "assistant") for part in item.content]}
            prefix = "msg"
        case FunctionCall():
            own = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            prefix = "fc"
        case FunctionCallOutput():
            own = {"call_id": item.call_id, "output": [_part(part, False) for part in item.output]}
            prefix = "fco"
        case ReasoningItem():
            own = {
                "summary": [part.model_dump() for part in item.summary],
                "content": [part.model_dump() for part in item.content],
            }
            prefix = "rs"
    name = item.id or f"{prefix}_{secrets.token_hex(16)}"
    return {"id": name, "type": item.type, "status": item.status or "completed", **own}


def _part(part: Part, is_answer: bool) -> Json:
    if not is_answer:
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
