"""Log probabilities in the two shapes that clients know: that of chats, and that of text completions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.request import Token, TokenLogprob
from engine.text.detokenizer import Detokenizer
from server.served import Tokenizer

Json = dict[str, object]
LOWEST = -9999.0  # what stands for less than JSON can say


def chat_logprobs(tokens: Iterable[Token], tokenizer: Tokenizer) -> Json:
    """`logprobs` of a chat's choice: one entry a token."""
    return {"content": [_entry(token.logprob, tokenizer) for token in tokens if token.logprob], "refusal": None}


def _entry(chosen: TokenLogprob, tokenizer: Tokenizer) -> Json:
    top = [_token(token, logprob, tokenizer) for token, logprob in chosen.top]
    return {**_token(chosen.token, chosen.logprob, tokenizer), "top_logprobs": top}


def _token(token: int, logprob: float, tokenizer: Tokenizer) -> Json:
    raw = tokenizer.token_bytes(token)
    text = raw.decode(errors="replace") if raw else tokenizer.token_text(token)
    return {"token": text, "logprob": max(logprob, LOWEST), "bytes": list(raw) if raw else None}


@dataclass(slots=True)
class LegacyLogprobs:
    """`logprobs` of a text completion's choice, as far as it has come; offsets count the choice's characters."""

    tokenizer: Tokenizer
    offset: int = 0
    _tokens: list[str] = field(default_factory=list)
    _logprobs: list[float | None] = field(default_factory=list)
    _top: list[dict[str, float] | None] = field(default_factory=list)
    _offsets: list[int] = field(default_factory=list)

    def add(self, tokens: Iterable[Token]) -> None:
        """Take generated tokens."""
        for token in tokens:
            self._add(token.id, token.logprob)
            self.offset += len(token.text)

    def add_prompt(self, prompt: Sequence[int], logprobs: Sequence[TokenLogprob | None]) -> None:
        """Take the prompt's tokens, of which the first has no probability."""
        decoder = Detokenizer(self.tokenizer)
        for token, logprob in zip(prompt, logprobs, strict=True):
            self._add(token, logprob)
            self.offset += len(decoder.push([token]))

    def take(self) -> Json:
        """What has been added since the last time."""
        taken: Json = {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._top,
            "text_offset": self._offsets,
        }
        self._tokens, self._logprobs, self._top, self._offsets = [], [], [], []
        return taken

    def _add(self, token: int, chosen: TokenLogprob | None) -> None:
        self._tokens.append(_legacy_text(token, self.tokenizer))
        self._offsets.append(self.offset)
        self._logprobs.append(None if chosen is None else max(chosen.logprob, LOWEST))
        self._top.append(None if chosen is None else self._likeliest(chosen))

    def _likeliest(self, chosen: TokenLogprob) -> dict[str, float]:
        """The top tokens and the chosen one, by their texts; of those that read alike the likelier."""
        likeliest: dict[str, float] = {}
        for token, logprob in (*chosen.top, (chosen.token, chosen.logprob)):
            likeliest.setdefault(_legacy_text(token, self.tokenizer), max(logprob, LOWEST))
        return likeliest


def _legacy_text(token: int, tokenizer: Tokenizer) -> str:
    """The token's text; where it is no whole character, its bytes as OpenAI writes them here."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode() or tokenizer.token_text(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
