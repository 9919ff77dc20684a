"""POST /v1/chat/completions: how a chat's answer is told, whole and in chunks."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from engine.api.request import Token
from engine.text.formats.parts import CallArguments, CallBegin, Content, Part, Reasoning
from server.fields.chat import ChatBody
from server.generate.answer import Context, Finish, Json, Plan, Update
from server.generate.figures import chat_logprobs
from server.generate.generation import Api, generate
from server.generate.plan import chat_plan
from server.generate.reply import ChoicesReply
from server.settings import ReasoningField
from server.wire.json_text import encoded

REASONING_FIELDS: Mapping[ReasoningField, tuple[str, ...]] = {
    "both": ("reasoning_content", "reasoning"),
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "none": (),
}


@dataclass(slots=True)
class Call:
    id: str
    name: str
    is_text: bool  # of a custom tool, whose one argument is a text
    arguments: list[str] = field(default_factory=list)

    @property
    def function(self) -> Json:
        return {"name": self.name, _argument(self.is_text): "".join(self.arguments)}

    @property
    def described(self) -> Json:
        return {"id": self.id, "type": _kind(self.is_text), _kind(self.is_text): self.function}


@dataclass(slots=True)
class Choice:
    """One choice as far as it has come."""

    opened: bool = False
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)  # in a stream: those whose side figures have not been sent
    finish: Finish | None = None


class ChatReply(ChoicesReply):
    """One chat's choices. Its calls get their ids here."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, body: ChatBody, plan: Plan, context: Context) -> None:
        extras: Mapping[str, object] = {
            **({"metadata": body.metadata} if body.metadata else {}),
            **({"prompt_token_ids": plan.prompts[0].tokens} if body.return_token_ids else {}),
        }
        super().__init__(body, plan, context, extras)
        names = REASONING_FIELDS[context.options.reasoning_field]
        self._reasoning_names = names if body.include_reasoning else ()
        self._logprobs = body.logprobs
        self._token_ids = body.return_token_ids
        self._legacy = bool(body.functions)
        self._tokenizer = context.model.tokenizer
        self._choices = [Choice() for _ in plan.requests]
        self._text_ends = [self._around_text(index) for index in range(len(plan.requests))]

    # -- in chunks

    def add(self, update: Update) -> bytes:
        """As for all choices; but text alone, as nearly every update is, goes between the ends of a prepared chunk."""
        match update.parts:
            case [Content(text=text)] if update.finish is None and self._tells_text_alone(update.choice):
                begin, end = self._text_ends[update.choice]
                return begin + encoded(text) + end
        return super().add(update)

    def _tells_text_alone(self, choice: int) -> bool:
        return self._is_streamed and self._choices[choice].opened and not (self._logprobs or self._token_ids)

    def _around_text(self, index: int) -> tuple[bytes, bytes]:
        """The bytes before and after the text of a chunk that brings nothing else."""
        begin, _, end = self._frame(self._chunk(index, {"content": ""})).rpartition(b'""')
        return begin, end

    def _chunks(self, update: Update) -> list[Json]:
        choice = self._choices[update.choice]
        if self._logprobs or self._token_ids:
            choice.tokens += update.tokens
        deltas = [delta for part in update.parts for delta in self._deltas(choice, part)]
        chunks = [self._chunk(update.choice, delta) for delta in deltas]
        if chunks and choice.tokens:
            chunks[-1] |= self._side_figures(choice)
        if not choice.opened:
            choice.opened = True
            chunks.insert(0, self._chunk(update.choice, {"role": "assistant", "content": ""}))
        if update.finish is not None:
            closing = self._chunk(update.choice, {}) | self._side_figures(choice)
            chunks.append(closing | _ending(update.finish, self._legacy))
        return chunks

    def _chunk(self, index: int, delta: Json) -> Json:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _deltas(self, choice: Choice, part: Part) -> list[Json]:
        match part:
            case Content(text=text):
                return [{"content": text}]
            case Reasoning(text=text):
                return [dict.fromkeys(self._reasoning_names, text)] if self._reasoning_names else []
            case CallBegin(index=index, name=name, is_text=is_text):
                call = Call(_new_call_id(), name, is_text)
                choice.calls.append(call)
                return [
                    {"function_call": call.function}
                    if self._legacy
                    else {"tool_calls": [{"index": index} | call.described]}
                ]
            case CallArguments(index=index, text=text):
                is_text = choice.calls[index].is_text
                piece = {_argument(is_text): text}
                more = {"index": index, _kind(is_text): piece}
                return [{"function_call": piece} if self._legacy else {"tool_calls": [more]}]
        return []

    def _side_figures(self, choice: Choice) -> Json:
        """What is told of the tokens that have come; each token once."""
        tokens, choice.tokens = choice.tokens, []
        figures: Json = {}
        if self._logprobs and tokens:
            figures["logprobs"] = chat_logprobs(tokens, self._tokenizer)
        if self._token_ids and tokens:
            figures["token_ids"] = [token.id for token in tokens]
        return figures

    # -- whole

    def _keep(self, update: Update) -> None:
        choice = self._choices[update.choice]
        choice.tokens += update.tokens
        choice.finish = update.finish or choice.finish
        for part in update.parts:
            match part:
                case Content(text=text):
                    choice.content.append(text)
                case Reasoning(text=text):
                    choice.reasoning.append(text)
                case CallBegin(name=name, is_text=is_text):
                    choice.calls.append(Call(_new_call_id(), name, is_text))
                case CallArguments(index=index, text=text):
                    choice.calls[index].arguments.append(text)

    def _whole_choices(self) -> list[Json]:
        return [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)]

    def _whole_choice(self, index: int, choice: Choice) -> Json:
        assert choice.finish is not None
        whole: Json = {
            "index": index,
            "message": self._message(choice),
            "logprobs": chat_logprobs(choice.tokens, self._tokenizer) if self._logprobs else None,
        }
        if self._token_ids:
            whole["token_ids"] = [token.id for token in choice.tokens]
        return whole | _ending(choice.finish, self._legacy)

    def _message(self, choice: Choice) -> Json:
        content = "".join(choice.content)
        # Strict clients break without the null refusal.
        message: Json = {"role": "assistant", "content": content or (None if choice.calls else ""), "refusal": None}
        if choice.reasoning:
            message |= dict.fromkeys(self._reasoning_names, "".join(choice.reasoning))
        if choice.calls and self._legacy:
            message["function_call"] = choice.calls[0].function
        elif choice.calls:
            message["tool_calls"] = [call.described for call in choice.calls]
        return message


def _ending(finish: Finish, legacy: bool) -> Json:
    reason = "function_call" if legacy and finish.reason == "tool_calls" else finish.reason
    stop = finish.event.stop
    return {"finish_reason": reason} | ({} if stop is None else {"stop_reason": stop})


def _kind(is_text: bool) -> str:
    return "custom" if is_text else "function"


def _argument(is_text: bool) -> str:
    return "input" if is_text else "arguments"


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


CHAT = Api(id_prefix="chatcmpl-", plan=chat_plan, reply=ChatReply)


async def create_chat_completion(http: Request, body: ChatBody) -> Response:
    return await generate(http, body, CHAT)
