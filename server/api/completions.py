"""POST /v1/completions: how a text completion is told, whole and in chunks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from engine.api.request import Token, TokenLogprob
from engine.text.detokenizer import Detokenizer
from engine.text.formats.parts import Content
from engine.text.tokenizer import Tokenizer
from server.fields.completions import CompletionBody
from server.generate.answer import Context, Finish, Json, Plan, Update
from server.generate.figures import LOWEST_LOGPROB
from server.generate.generation import Api, generate
from server.generate.plan import completion_plan
from server.generate.reply import ChoicesReply


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
        self._logprobs.append(None if chosen is None else max(chosen.logprob, LOWEST_LOGPROB))
        self._top.append(None if chosen is None else self._likeliest(chosen))

    def _likeliest(self, chosen: TokenLogprob) -> dict[str, float]:
        """The top tokens and the chosen one, by their texts; of those that read alike the likelier."""
        likeliest: dict[str, float] = {}
        for token, logprob in (*chosen.top, (chosen.token, chosen.logprob)):
            likeliest.setdefault(_legacy_text(token, self.tokenizer), max(logprob, LOWEST_LOGPROB))
        return likeliest


def _legacy_text(token: int, tokenizer: Tokenizer) -> str:
    """The token's text; where it is no whole character, its bytes as OpenAI writes them here."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode() or tokenizer.token_text(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


@dataclass(slots=True)
class Choice:
    """One choice as far as it has come."""

    logprobs: LegacyLogprobs
    opened: bool = False
    text: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)  # in a stream: those whose side figures have not been sent
    finish: Finish | None = None


class CompletionReply(ChoicesReply):
    """One text completion's choices."""

    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, body: CompletionBody, plan: Plan, context: Context) -> None:
        super().__init__(body, plan, context, {"metadata": body.metadata} if body.metadata else {})
        self._logprobs = body.logprobs is not None
        self._token_ids = body.return_token_ids
        self._choices = [Choice(LegacyLogprobs(context.model.tokenizer)) for _ in plan.requests]

    # -- in chunks

    def _chunks(self, update: Update) -> list[Json]:
        choice = self._choices[update.choice]
        if self._logprobs or self._token_ids:
            choice.tokens += update.tokens
        text = _text(update) if choice.opened else self._opening(update.choice, choice) + _text(update)
        chunks = [self._told(update.choice, text, choice)] if text else []
        if update.finish is not None:
            chunks.append(self._told(update.choice, "", choice) | _ending(update.finish))
        return chunks

    def _opening(self, index: int, choice: Choice) -> str:
        choice.opened = True
        return self._echo(index)

    def _echo(self, index: int) -> str:
        return self._plan.echo[index // self._plan.n] if self._plan.echo else ""

    def _chunk(self, index: int, text: str) -> Json:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None}

    def _told(self, index: int, text: str, choice: Choice) -> Json:
        chunk = self._chunk(index, text)
        return chunk | self._side_figures(choice) if choice.tokens else chunk

    def _side_figures(self, choice: Choice) -> Json:
        """What is told of the tokens that have come; each token once."""
        tokens, choice.tokens = choice.tokens, []
        figures: Json = {}
        if self._logprobs and tokens:
            choice.logprobs.add(tokens)
            figures["logprobs"] = choice.logprobs.take()
        if self._token_ids and tokens:
            figures["token_ids"] = [token.id for token in tokens]
        return figures

    # -- whole

    def _keep(self, update: Update) -> None:
        choice = self._choices[update.choice]
        choice.text.append(_text(update))
        choice.tokens += update.tokens
        choice.finish = update.finish or choice.finish

    def _whole_choices(self) -> list[Json]:
        return [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)]

    def _whole_choice(self, index: int, choice: Choice) -> Json:
        assert choice.finish is not None
        prompt = self._plan.requests[index].prompt
        whole = self._chunk(index, self._echo(index) + "".join(choice.text))
        if self._logprobs:
            if self._plan.echo:
                choice.logprobs.add_prompt(prompt, choice.finish.event.prompt_logprobs)
            choice.logprobs.add(choice.tokens)
            whole["logprobs"] = choice.logprobs.take()
        if self._token_ids:
            whole |= {"token_ids": [token.id for token in choice.tokens], "prompt_token_ids": prompt.tokens}
        return whole | _ending(choice.finish)


def _text(update: Update) -> str:
    text = ""  # of one part nearly always, where a join takes longer
    for part in update.parts:
        if isinstance(part, Content):
            text += part.text
    return text


def _ending(finish: Finish) -> Json:
    stop = finish.event.stop
    return {"finish_reason": finish.reason} | ({} if stop is None else {"stop_reason": stop})


COMPLETION = Api(id_prefix="cmpl-", plan=completion_plan, reply=CompletionReply)


async def create_completion(http: Request, body: CompletionBody) -> Response:
    return await generate(http, body, COMPLETION)
