"""One response as it comes to be: every part of the answer changes it, and every change is a numbered event."""

import time
from collections.abc import Callable, Sequence

from engine.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning
from server.api.responses.body import ResponsesBody
from server.api.responses.items import Call, OpenItem, Status, TextMessage, Thought
from server.api.responses.logprobs import TracedContent, text_logprobs
from server.api.responses.record import response_head
from server.generate.answer import Context, Finish, Json, Plan
from server.generate.figures import timings
from server.generate.reply import EventReply
from server.wire.wire_error import WireError


class ResponseReply(EventReply):
    """Builds the response, whole and as events: the two cannot differ."""

    def __init__(self, body: ResponsesBody, plan: Plan, context: Context, keep: Callable[[Json], None]) -> None:
        """keep: takes the complete response, before its client does."""
        super().__init__(is_streamed=body.stream)
        head = response_head(body, plan.id, context.model)
        self._response: Json = {**head, "status": "in_progress", "output": [], "usage": None}
        self._tokenizer = context.model.tokenizer
        self._speed = context.speed
        self._keep = keep
        self._output: list[Json] = []
        self._open: OpenItem | None = None
        self._sequence = 0

    def _begin_events(self) -> list[Json]:
        return [self._lifecycle("created"), self._lifecycle("in_progress")]

    def _finish_events(self, finish: Finish) -> list[Json]:
        cut = finish.reason == "length"
        status: Status = "incomplete" if cut else "completed"
        # A call that is still open has been cut, by a stop string if not by length.
        events = self._close("incomplete" if isinstance(self._open, Call) else status)
        self._response |= {
            "status": status,
            "output": self._output,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": _usage(finish),
            "timings": timings(finish.event, speed=self._speed),
        }
        if not cut:
            self._response["completed_at"] = int(time.time())
        self._keep(self._response)
        return [*events, self._lifecycle(status)]

    def _failure_events(self, error: WireError) -> list[Json]:
        begun = [] if self._open is None else [self._open.whole("incomplete")]
        told = {"code": "server_error", "message": error.message}
        self._response |= {"status": "failed", "error": told, "output": [*self._output, *begun]}
        return [self._lifecycle("failed")]

    def whole(self) -> Json:
        return self._response

    def _part_events(self, part: Part) -> list[Json]:
        match part:
            case Reasoning(text=text):
                return self._reason(text)
            case Content():
                return self._say(part)
            case CallBegin(name=name):
                return self._begin(lambda index: Call(index, name))
            case CallArguments(text=text):
                return [self._open.delta(text)] if isinstance(self._open, Call) and text else []
            case CallEnd():
                return self._close("completed")

    def _reason(self, text: str) -> list[Json]:
        if not text:
            return []
        events: list[Json] = []
        if not isinstance(self._open, Thought):
            events = self._begin(Thought)
        assert isinstance(self._open, Thought)
        return [*events, self._open.delta(text)]

    def _say(self, part: Content) -> list[Json]:
        tokens = part.tokens if isinstance(part, TracedContent) else ()
        if not part.text:
            return []
        events: list[Json] = []
        if not isinstance(self._open, TextMessage):
            events = self._begin(TextMessage)
        assert isinstance(self._open, TextMessage)
        return [*events, self._open.delta(part.text, text_logprobs(tokens, self._tokenizer))]

    def _begin(self, kind: Callable[[int], OpenItem]) -> list[Json]:
        events = self._close("completed")
        self._open = kind(len(self._output))
        return [*events, *self._open.added()]

    def _close(self, status: Status) -> list[Json]:
        """End the open item, if there is one."""
        item, self._open = self._open, None
        if item is None:
            return []
        self._output.append(item.whole(status))
        return item.done(status)

    def _lifecycle(self, kind: str) -> Json:
        return {"type": f"response.{kind}", "response": dict(self._response)}

    def _frames(self, events: Sequence[Json]) -> bytes:
        for event in events:
            event["sequence_number"] = self._sequence
            self._sequence += 1
        return super()._frames(events)


def _usage(finish: Finish) -> Json:
    event = finish.event
    return {
        "input_tokens": event.prompt_tokens,
        "input_tokens_details": {"cached_tokens": event.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": event.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
        "total_tokens": event.prompt_tokens + event.completion_tokens,
    }
