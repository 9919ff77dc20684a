"""From the tokens of one request to its text, its stops and its end."""

from engine.request import FinishReason, Request, TextEvent, Token
from engine.text.detokenizer import Detokenizer
from engine.text.stops import StopMatcher
from engine.text.tokenizer import Tokenizer


class RequestOutput:
    """Turns tokens into text events, one at a time, and knows when the request has ended."""

    def __init__(self, request: Request, tokenizer: Tokenizer, max_new_tokens: int) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(request.stop)
        self._end_ids = frozenset[int]() if request.ignore_eos else tokenizer.end_ids
        self._left = max_new_tokens
        self._unreported: list[Token] = []
        self.finish_reason: FinishReason | None = None

    def push(self, token: int) -> TextEvent | None:
        """Take the next token; return its event, unless all text is held back. Sets finish_reason at the end."""
        assert self.finish_reason is None
        self._left -= 1
        text = "" if token in self._end_ids else self._stops.push(self._detokenizer.push([token]))
        if self._stops.stopped or token in self._end_ids:
            self.finish_reason = FinishReason.STOP
        elif self._left == 0:
            self.finish_reason = FinishReason.LENGTH
        self._unreported.append(Token(token, text + self._rest()))
        return self._event()

    def _rest(self) -> str:
        """Return the text held back until the end; what was held back may yet turn out to be a stop string."""
        if self.finish_reason is None or self._stops.stopped:
            return ""
        rest = self._stops.push(self._detokenizer.flush())
        if self._stops.stopped:
            self.finish_reason = FinishReason.STOP
            return rest
        return rest + self._stops.flush()

    def _event(self) -> TextEvent | None:
        """Report the tokens since the last event, at the end even if they have no text."""
        if not self._unreported[-1].text and self.finish_reason is None:
            return None
        event = TextEvent(tuple(self._unreported))
        self._unreported = []
        return event
