"""A text completion's choices, whole and in chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.formats.parts import Content
from engine.request import Token
from server.api.completions.body import CompletionBody
from server.generate.answer import Finish, Plan, Update
from server.generate.logprobs import LegacyLogprobs
from server.generate.replies import Json
from server.served import Tokenizer


@dataclass(slots=True)
class Choice:
    """One choice as far as it has come."""

    logprobs: LegacyLogprobs
    opened: bool = False
    text: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)  # in a stream: those whose side figures have not been sent
    finish: Finish | None = None


class CompletionShape:
    """One text completion's choices."""

    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, body: CompletionBody, plan: Plan, tokenizer: Tokenizer) -> None:
        self._plan = plan
        self._logprobs = body.logprobs is not None
        self._token_ids = body.return_token_ids
        self._choices = [Choice(LegacyLogprobs(tokenizer)) for _ in plan.requests]
        self.extras: Mapping[str, object] = {"metadata": body.metadata} if body.metadata else {}

    # -- in chunks

    def chunks(self, update: Update) -> list[Json]:
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

    def add(self, update: Update) -> None:
        choice = self._choices[update.choice]
        choice.text.append(_text(update))
        choice.tokens += update.tokens
        choice.finish = update.finish or choice.finish

    def whole(self) -> list[Json]:
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
