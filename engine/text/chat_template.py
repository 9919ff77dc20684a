"""Chat messages to the model's prompt, by the template that the model brings or that stands in a file of its own.

Special tokens that are quoted inside messages, tools and other values get a guard character before the template sees
them. So the tokenizer can tell quoted tokens from the tokens that the template itself writes.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from engine.errors import ModelFileError, ModelNotFoundError, TemplateError
from engine.text.added_tokens import SpecialTokens
from engine.text.messages import Message, for_template, in_turns, system_first, with_text_arguments
from engine.text.sandbox.template_process import BrokenTemplateError, RefusedByTemplateError, shared_process
from engine.text.tokenizer import RenderedChat

MAX_TEMPLATE_BYTES = 1 << 20


def read_template(path: Path) -> str:
    """The text in the file. Raises ModelNotFoundError or ModelFileError."""
    try:
        with path.open("rb") as file:  # a pipe will do, whose size nobody knows before
            content = file.read(MAX_TEMPLATE_BYTES + 1)
        text = content.decode()
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no chat template {path}; check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a null byte in the path
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"The chat template {path} cannot be read: {reason}; use another file.") from error
    if len(content) > MAX_TEMPLATE_BYTES:
        raise ModelFileError(f"The chat template {path} has more than {MAX_TEMPLATE_BYTES} bytes; use another file.")
    return text


def given_template(path: Path) -> str:
    """The text of a template that the operator gives, which compiles and says something. Raises ModelError."""
    source = read_template(path)
    if not source.strip():
        raise ModelFileError(f"The chat template {path} is empty; use another file.")
    shared_process().compile(source, f"The chat template {path}")
    return source


LONGEST_SOURCE = 1 << 20  # characters
GUARDS = [
    *map(chr, range(0xFDD0, 0xFDF0)),
    *(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF)),
]
_GUARD = re.compile("[" + "".join(GUARDS) + "]")


class ChatTemplate:
    """One model's template. Rendering is safe from any thread."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        control_tokens: Collection[str] = (),
        user_tokens: Collection[str] = (),
    ) -> None:
        """`control_tokens` and `user_tokens` are the tokenizer's. Raises ModelFileError for a broken template."""
        if len(source) > LONGEST_SOURCE:
            raise ModelFileError(
                f"The model's chat template is longer than {LONGEST_SOURCE} characters; use another file."
            )
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        # User-defined tokens such as <think> mean something to the template only if they stand in it; others are text.
        marks = {token for token in user_tokens if token.strip() and token in source}
        self._control = SpecialTokens(control_tokens)
        self._special = SpecialTokens(marks | set(control_tokens))
        shared_process().compile(source)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        """The prompt of a chat; `extra` holds more variables of the template. Raises TemplateError.

        Where the template refuses the messages as they are, it gets all system messages as one at the front; where it
        refuses that too, turns of user and assistant only, which alternate. If nothing helps, its first refusal counts.
        """
        variables = {**(extra or {}), "tools": tools or None, "add_generation_prompt": add_generation_prompt}
        chat = for_template(messages)
        try:
            return self._first_accepted([chat, system_first(chat), in_turns(chat)], variables)
        except RecursionError:
            raise TemplateError("The messages or tools are nested too deeply; make them flatter.") from None

    def _first_accepted(self, chats: list[list[Message]], variables: Mapping[str, object]) -> RenderedChat:
        refusal: RefusedByTemplateError | None = None
        for place, chat in enumerate(chats):
            if chat in chats[:place]:
                continue
            try:
                return self._render(chat, variables)
            except RefusedByTemplateError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    def _render(self, chat: Sequence[Message], variables: Mapping[str, object]) -> RenderedChat:
        """Try what templates are known to want, one after another; the first failure is the one to tell."""
        failure: BrokenTemplateError | None = None
        for messages, more in _variants(chat, variables):
            try:
                return self._render_once(messages, more)
            except BrokenTemplateError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def _render_once(self, chat: Sequence[Message], variables: Mapping[str, object]) -> RenderedChat:
        guard = _free_guard([self.source, chat, variables])
        guarded = _map_strings(variables, lambda text, edges: self._special.guard(text, guard, edges))
        assert isinstance(guarded, dict)
        guarded |= self._tokens | {"documents": None, "messages": [self._guard_message(each, guard) for each in chat]}
        return RenderedChat(shared_process().render(self.source, guarded), guard)

    def _guard_message(self, message: Message, guard: str) -> Message:
        """What the model wrote itself keeps its <think> and <tool_call>, which the template has to find."""
        special = self._control if message["role"] == "assistant" else self._special
        guarded = _map_strings(message, lambda text, edges: special.guard(text, guard, edges))
        assert isinstance(guarded, dict)
        return guarded | {"role": message["role"]}


def _variants(
    chat: Sequence[Message], variables: Mapping[str, object]
) -> Iterator[tuple[Sequence[Message], Mapping[str, object]]]:
    """The chat as it is; calls' arguments as text; and for templates that lean on older names and on tools, those."""
    yield chat, variables
    textual = with_text_arguments(chat)
    if textual != chat:
        yield textual, variables
    tools = variables["tools"] or []
    functions = json.dumps(tools, ensure_ascii=False)
    yield chat, {**variables, "tools": tools, "functions": functions, "datetime": f"{datetime.now():%Y-%m-%d}"}


def _map_strings(value: object, change: Callable[[str, bool], str]) -> object:
    """The same JSON value with every string changed; the flag tells values (true) from keys."""
    if isinstance(value, str):
        return change(value, True)
    if isinstance(value, Mapping):
        return {change(str(key), False): _map_strings(each, change) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_map_strings(each, change) for each in value]
    return value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _strings(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)


def _free_guard(values: object) -> str:
    """A noncharacter of Unicode that occurs nowhere in the values."""
    used = {match for text in _strings(values) for match in _GUARD.findall(text)}
    free = next((guard for guard in GUARDS if guard not in used), None)
    if free is None:
        raise TemplateError("The messages hold every noncharacter of Unicode; remove one of them.")
    return free
