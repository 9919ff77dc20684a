"""One response as it comes to be: every part of the answer changes it, and every change is a numbered event."""

import time
from collections.abc import Callable, Sequence

from engine.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning
from engine.request import Token
from server.api.responses.items import Call, OpenItem, Status, TextMessage, Thought
from server.api.responses.logprobs import TracedContent
from server.generate.answer import Finish
from server.generate.chat_form import Json
from server.generate.replies import Speed, timings

Describe = Callable[[Sequence[Token]], list[Json]]  # tokens -> the JSON of their logprobs


class ResponseReply:
    """Builds the response, whole and as events: the two cannot differ."""

    def __init__(self, head: Json, describe: Describe, speed: Speed | None = None) -> None:
        self._response: Json = {**head, "status": "in_progress", "output": [], "usage": None}
        self._describe = describe
        self._speed = speed
        self._output: list[Json] = []
        self._open: OpenItem | None = None
        self._sequence = 0

    def start(self) -> list[Json]:
        return self._numbered([self._lifecycle("created"), self._lifecycle("in_progress")])

    def push(self, parts: Sequence[Part]) -> list[Json]:
        return self._numbered([event for part in parts for event in self._push(part)])

    def finish(self, finish: Finish) -> list[Json]:
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
        return self._numbered([*events, self._lifecycle(status)])

    def fail(self, message: str) -> list[Json]:
        """The end of a stream whose answer will not be completed."""
        begun = [] if self._open is None else [self._open.whole("incomplete")]
        error = {"code": "server_error", "message": message}
        self._response |= {"status": "failed", "error": error, "output": [*self._output, *begun]}
        return self._numbered([self._lifecycle("failed")])

    @property
    def whole(self) -> Json:
        """The whole response; complete once it is finished."""
        return self._response

    def _push(self, part: Part) -> list[Json]:
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
        return [*events, self._open.delta(part.text, self._describe(tokens))]

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

    def _numbered(self, events: list[Json]) -> list[Json]:
        for event in events:
            event["sequence_number"] = self._sequence
            self._sequence += 1
        return events


def _usage(finish: Finish) -> Json:
    event = finish.event
    return {
        "input_tokens": event.prompt_tokens,
        "input_tokens_details": {"cached_tokens": event.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": event.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
        "total_tokens": event.prompt_tokens + event.completion_tokens,
    }
