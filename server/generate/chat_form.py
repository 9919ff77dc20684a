"""Another API's request in the form of a chat completion, and its errors led back to that API's own names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from engine.errors import RequestError
from server.fields.chat import ChatBody
from server.generate.answer import Context, Json, Plan
from server.generate.plan import chat_plan
from server.generate.prompts import ChatLengthError, chat_prompt
from server.served import ServedModel
from server.settings import ServingOptions
from server.validation import request_error


@dataclass(frozen=True, slots=True)
class ChatForm:
    """The body of a chat completion, and what its parts are called in the request that it was made from."""

    body: Json
    names: Sequence[tuple[str, str]] = ()  # (path in the chat's body, path in the request); the longest match counts

    def validated(self) -> ChatBody:
        """The checked body; raises RequestError in the request's own names."""
        try:
            return ChatBody.model_validate(self.body)
        except ValidationError as error:
            raise self.renamed(request_error(error, self.body)) from None

    def plan(self, context: Context) -> Plan:
        """The plan of this chat. Blocking; errors and notes are in the request's own names."""
        body = self.validated()
        try:
            plan = chat_plan(body, context)
        except RequestError as error:
            raise self.renamed(error) from error.__cause__
        return replace(plan, notes=self.own_names(plan.notes))

    def count_tokens(self, model: ServedModel, options: ServingOptions) -> tuple[int, list[str]]:
        """The number of tokens of the prompt, also past the context, and the names of what has no effect. Blocking."""
        body = self.validated()
        try:
            prompt = chat_prompt(body, model, options.default_template_kwargs)
        except RequestError as error:
            raise self.renamed(error) from error.__cause__
        return len(prompt.tokens), list(self.own_names(prompt.notes))

    def renamed(self, error: RequestError) -> RequestError:
        """The same error, about the request as its sender knows it."""
        if error.param is None:
            return error
        param = self.own_name(error.param)
        if isinstance(error, ChatLengthError):
            return ChatLengthError(
                error.prompt_tokens,
                error.context_length,
                param=param,
                biggest=error.biggest,
                path=self.own_name(error.path),
            )
        message = str(error)
        if message.startswith(error.param):  # the place is the sentence's first word, if the sentence names the place
            message = param + message[len(error.param) :]
        return RequestError(message, param=param, code=error.code)

    def own_names(self, paths: Sequence[str]) -> tuple[str, ...]:
        """What paths of the chat's body are called in the request, each once."""
        return tuple(dict.fromkeys(self.own_name(path) for path in paths))

    def own_name(self, path: str) -> str:
        """What a path of the chat's body is called in the request."""
        matches = [(chat, own) for chat, own in self.names if _is_within(path, chat)]
        if not matches:
            return path
        chat, own = max(matches, key=lambda match: len(match[0]))
        return own + path[len(chat) :]


def _is_within(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", ".", "[")


def given(**fields: object) -> Mapping[str, object]:
    """The fields that were sent: a chat's own defaults hold for the others."""
    return {name: value for name, value in fields.items() if value is not None}
