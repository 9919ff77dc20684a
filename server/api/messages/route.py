"""POST /v1/messages and POST /v1/messages/count_tokens.

One message as it comes to be: every part of the answer changes it, and every change is an event of its stream.
"""

import hashlib
import secrets

from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning
from server.api.messages.body import MessagesBody, PromptBody
from server.api.messages.errors import messages_error
from server.api.messages.to_chat import messages_form, prompt_form
from server.fields.parameters import ignored_header
from server.generate.answer import Context, Finish, Json, Plan
from server.generate.figures import timings
from server.generate.generation import Api, generate, serving_of
from server.generate.reply import EventReply
from server.wire.body import ignored_of
from server.wire.json_text import json_answer
from server.wire.wire_error import WireError

PING_EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'


class OpenBlock:
    """The content block that is being written."""

    def __init__(self, begun: Json, text_key: str, delta_type: str, delta_key: str) -> None:
        self.begun = begun
        self.text_key = text_key
        self.delta_type = delta_type
        self.delta_key = delta_key
        self.pieces: list[str] = []

    def delta(self, text: str) -> Json:
        self.pieces.append(text)
        return {"type": self.delta_type, self.delta_key: text}

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class MessageReply(EventReply):
    """Builds the message, whole and as events: the two cannot differ."""

    def __init__(self, body: MessagesBody, plan: Plan, context: Context) -> None:
        super().__init__(is_streamed=body.stream)
        self._envelope: Json = {"id": plan.id, "type": "message", "role": "assistant", "model": context.model.id}
        self._prompt_tokens = len(plan.prompts[0])
        self._max_tokens = body.max_tokens
        self._hide_thinking = body.hides_thinking
        self._speed = context.speed
        self._content: list[Json] = []
        self._open: OpenBlock | None = None

    def _begin_events(self) -> list[Json]:
        usage = _usage(self._prompt_tokens, 0, 0, 0)
        message = {**self._envelope, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return [{"type": "message_start", "message": message}]

    def ping(self) -> bytes:
        return PING_EVENT

    def _finish_events(self, finish: Finish) -> list[Json]:
        events = self._close()
        reason, sequence = self._stop(finish)
        event = finish.event
        figures = _usage(event.prompt_tokens, event.cached_tokens, event.completion_tokens, finish.reasoning_tokens)
        self._envelope |= {"content": self._content, "stop_reason": reason, "stop_sequence": sequence, "usage": figures}
        self._envelope["timings"] = timings(event, speed=self._speed)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        closing = {"type": "message_delta", "delta": delta, "usage": figures, "timings": self._envelope["timings"]}
        return [*events, closing, {"type": "message_stop"}]

    def _failure_events(self, error: WireError) -> list[Json]:
        return [messages_error(error.status, error.message)]

    def whole(self) -> Json:
        return self._envelope

    def _part_events(self, part: Part) -> list[Json]:
        begun: Json
        match part:
            case Reasoning(text=text):
                begun = {"type": "thinking", "thinking": "", "signature": ""}
                return self._text(begun, "thinking", "thinking_delta", text)
            case Content(text=text):
                return self._text({"type": "text", "text": ""}, "text", "text_delta", text)
            case CallBegin(name=name):
                begun = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": name, "input": {}}
                return self._begin(OpenBlock(begun, "input", "input_json_delta", "partial_json"))
            case CallArguments(text=text):
                return self._delta(text)
            case CallEnd():
                return self._close()

    def _text(self, begun: Json, key: str, delta_type: str, text: str) -> list[Json]:
        if not text:
            return []
        is_new = self._open is None or self._open.begun["type"] != begun["type"]
        events = self._begin(OpenBlock(begun, key, delta_type, key)) if is_new else []
        return events + self._delta(text)

    def _begin(self, block: OpenBlock) -> list[Json]:
        closing = self._close()
        self._open = block
        start = {"type": "content_block_start", "index": len(self._content), "content_block": dict(block.begun)}
        return [*closing, start]

    def _delta(self, text: str) -> list[Json]:
        if self._open is None or not text:
            return []
        delta = self._open.delta(text)
        return [] if self._hides(self._open) else [self._block_delta(delta)]

    def _close(self) -> list[Json]:
        """End the open block, if there is one."""
        block, self._open = self._open, None
        if block is None:
            return []
        events: list[Json] = []
        match block.begun["type"]:
            case "thinking":
                signature = hashlib.sha256(block.text.encode()).hexdigest()
                thinking = "" if self._hides(block) else block.text
                whole = {**block.begun, "thinking": thinking, "signature": signature}
                events.append(self._block_delta({"type": "signature_delta", "signature": signature}))
            case "tool_use":
                whole = {**block.begun, "input": called_with(block.text)}
            case _:
                whole = {**block.begun, "text": block.text}
        events.append({"type": "content_block_stop", "index": len(self._content)})
        self._content.append(whole)
        return events

    def _hides(self, block: OpenBlock) -> bool:
        return self._hide_thinking and block.begun["type"] == "thinking"

    def _block_delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": len(self._content), "delta": delta}

    def _stop(self, finish: Finish) -> tuple[str, str | None]:
        event = finish.event
        match finish.reason:
            case "tool_calls":
                return "tool_use", None
            case "length":
                by_context = event.completion_tokens < self._max_tokens and event.stop != "deadline"
                return ("model_context_window_exceeded" if by_context else "max_tokens"), None
            case "stop":
                return ("stop_sequence", event.stop) if isinstance(event.stop, str) else ("end_turn", None)


def called_with(arguments: str) -> Json:
    """The object that a call's text says; of a text cut short, what was complete (the stop reason tells of the cut)."""
    try:
        value = from_json(arguments, allow_partial=True) if arguments else {}
    except ValueError:
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _usage(prompt: int, cached: int, completion: int, thinking: int) -> Json:
    """The parts of the prompt add up: what came from the cache is not among the input tokens."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": completion,
        "output_tokens_details": {"thinking_tokens": thinking},
    }


MESSAGES: Api[MessagesBody] = Api(
    id_prefix="msg_",
    plan=lambda body, context: messages_form(body).plan(context),
    reply=MessageReply,
)


async def create_message(http: Request, body: MessagesBody) -> Response:
    return await generate(http, body, MESSAGES)


async def count_message_tokens(http: Request, body: PromptBody) -> Response:
    serving = serving_of(http)
    options = serving.options
    model = serving.model_named(body.model)
    count, notes = await run_in_threadpool(lambda: prompt_form(body).count_tokens(model, options))
    return json_answer({"input_tokens": count}, headers=ignored_header([*ignored_of(http), *notes]))
