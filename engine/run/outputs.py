"""From the tokens of one request to its text, its stops and its end."""

from dataclasses import replace

from engine.api.request import FinishReason, Request, TextEvent, Token, TokenLogprob
from engine.text.detokenizer import Detokenizer, StopMatcher, TokenBytes
from engine.text.tokenizer import Tokenizer

DEADLINE = "deadline"  # what FinishEvent.stop says where time ended an answer


class RequestOutput:
    """Turns tokens into text events, one at a time, and knows when the request has ended, and by what."""

    def __init__(self, request: Request, tokenizer: Tokenizer, max_new_tokens: int) -> None:
        self._request = request
        self._tokenizer = tokenizer
        written: TokenBytes = tokenizer if request.skip_special_tokens else _EveryToken(tokenizer)
        self._detokenizer = Detokenizer(written)
        self._stops = StopMatcher(request.stop, include=request.include_stop)
        self._end_ids = request.ending_tokens(tokenizer.end_ids)
        self._max_new_tokens = max_new_tokens
        self._new_tokens = 0
        self._unreported: list[Token] = []
        self._may_end_early = request.max_seconds is not None  # after any token, with the text held back till then
        self._may_be_held = bool(request.stop or request.marks or self._may_end_early)
        self.finish_reason: FinishReason | None = None
        self.stop: str | int | None = None  # as FinishEvent has it

    def push(self, token: int, logprob: TokenLogprob | None = None, *, is_last: bool = False) -> TextEvent | None:
        """Take the next token; return its event, unless all text is held back. Sets finish_reason at the end.

        `is_last` says that time is up with this token.
        """
        assert self.finish_reason is None
        self._new_tokens += 1
        is_end = token in self._end_ids
        is_over = is_end or is_last or self._new_tokens == self._max_new_tokens
        if not is_over and not self._may_be_held:
            return self._plain_event(token, logprob)
        is_mark = False
        if is_end:
            text = ""
        elif token in self._request.marks:
            text, is_mark = self._mark_text(token), True
        else:
            text = self._match(self._detokenizer.push([token]))
        if is_over:
            text += self._rest()
        self._note_end(token if is_end else None, is_last)
        if is_end and not self._stops.stopped:
            text += self._end_text(token)
        self._unreported.append(Token(token, text, is_mark and not self._stops.stopped, logprob))
        return self._event()

    def end(self) -> TextEvent | None:
        """Time is up and no further token comes: return the text held back, if there is any. Sets finish_reason."""
        rest = self._rest()
        self._note_end(None, is_last=True)
        if rest:
            self._add_to_last(rest)
        return self._event() if self._unreported else None

    def _plain_event(self, token: int, logprob: TokenLogprob | None) -> TextEvent | None:
        """Report a token that only has text, as most tokens do: no end, no mark, no stop string."""
        text = self._detokenizer.push([token])
        self._unreported.append(Token(token, text, False, logprob))
        if not text:
            return None
        event = TextEvent(tuple(self._unreported))
        self._unreported = []
        return event

    def _match(self, text: str) -> str:
        """Return what is safe to send; before min_tokens no text is looked at."""
        return text if self._new_tokens < self._request.min_tokens else self._stops.push(text)

    def _rest(self) -> str:
        """Return the text held back so far; its last character may yet complete a stop string."""
        return self._match(self._detokenizer.flush()) + self._stops.flush()

    def _mark_text(self, token: int) -> str:
        """Complete the text before a mark, and return the mark's name, which may be a stop string too."""
        rest = self._rest()
        if rest:
            self._add_to_last(rest)
        return self._match(self._tokenizer.token_text(token)) + self._stops.flush()

    def _add_to_last(self, text: str) -> None:
        """Add text that was held back to its token, which is unreported: see _event."""
        self._unreported[-1] = replace(self._unreported[-1], text=self._unreported[-1].text + text)

    def _note_end(self, end: int | None, is_last: bool) -> None:
        """Set the reason if the answer is over: by an end token, or by text, number of tokens or time."""
        if self._stops.stopped:
            self.finish_reason, self.stop = FinishReason.STOP, self._stops.matched
        elif end is not None:
            self.finish_reason = FinishReason.STOP
            self.stop = end if end in self._request.stop_tokens else None
        elif self._new_tokens == self._max_new_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif is_last:
            self.finish_reason, self.stop = FinishReason.LENGTH, DEADLINE

    def _end_text(self, token: int) -> str:
        """Return what an end token leaves in the text: a stop token its name, if asked for; an end of turn nothing."""
        if not self._request.include_stop:
            return ""
        if token in self._request.stop_tokens or not self._request.skip_special_tokens:
            return _EveryToken(self._tokenizer).token_bytes(token).decode("utf-8", "replace")
        return ""

    def _event(self) -> TextEvent | None:
        """Report the tokens since the last event, at the end even if they have no text.

        A token is kept while part of its text is held back if a mark or the end of time may come, which would release
        that text.
        """
        last = self._unreported[-1]
        if self.finish_reason is None and not last.is_mark and (not last.text or self._may_grow()):
            return None
        event = TextEvent(tuple(self._unreported))
        self._unreported = []
        return event

    def _may_grow(self) -> bool:
        """Whether text of the last token is held back that a mark or the end of time would release."""
        can_be_released = bool(self._request.marks) or self._may_end_early
        return can_be_released and (self._stops.is_holding or self._detokenizer.is_holding)


class _EveryToken:
    """A tokenizer whose control tokens write their names."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def token_bytes(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token) or self._tokenizer.token_text(token).encode()
