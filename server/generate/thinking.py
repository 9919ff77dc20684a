"""Whether and how long a chat's model is to think, under all the names that clients have for thinking."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.text.formats.detection import template_variables, thinking_arguments
from server.fields.chat import ChatBody

SWITCHES = ("enable_thinking", "thinking")  # what templates call it
BUDGETS = frozenset({"thinking_token_budget"})
variables_of = lru_cache(maxsize=8)(template_variables)


@dataclass(frozen=True, slots=True)
class ThinkingOptions:
    """Whether and how long a chat's model is to think."""

    arguments: Mapping[str, object]  # for the template
    budget: int | None  # tokens; 0 switches thinking off, None sets no bound
    notes: tuple[str, ...]  # names of parameters that have no effect on this model


def thinking_options(body: ChatBody, defaults: Mapping[str, object], source: str, *, thinks: bool) -> ThinkingOptions:
    """All the ways to say it, and which of them counts.

    What the request says in chat_template_kwargs comes first, then its other fields, then the server's default
    (`defaults`), and then the template's own. `source` is the template's; `thinks` says whether its model can.
    """
    own = {name: value for name, value in body.chat_template_kwargs.items() if value is not None}
    own_switch, switch = _switch(own), _field_switch(body)
    said: Mapping[str, object] = {}
    if switch is not None and own_switch is None:
        effort = body.think if isinstance(body.think, str) else body.reasoning_effort
        said = thinking_arguments(source, switch, effort)
    enabled = next((each for each in (own_switch, switch, _switch(defaults)) if each is not None), None)
    read = variables_of(source)
    unread = [name for name in own if name not in read and not (thinks and name in SWITCHES and enabled is False)]
    counts = thinks and (said or own_switch is not None or enabled is False)
    named = [name for name in _thinking_fields(body) if not counts and not (thinks and name in BUDGETS)]
    notes = (*(f"chat_template_kwargs.{name}" for name in unread), *named)
    return ThinkingOptions({**defaults, **said, **own}, 0 if enabled is False else _budget(body), notes)


def _switch(arguments: Mapping[str, object]) -> bool | None:
    found = (arguments[name] for name in SWITCHES if isinstance(arguments.get(name), bool))
    value = next(found, None)
    return value if isinstance(value, bool) else None


def _field_switch(body: ChatBody) -> bool | None:
    if body.enable_thinking is not None:
        return body.enable_thinking
    if body.think is not None:
        return body.think is not False
    if body.thinking is not None and body.thinking.type in ("enabled", "disabled"):
        return body.thinking.type == "enabled"
    return None if body.reasoning_effort is None else body.reasoning_effort != "none"


def _budget(body: ChatBody) -> int | None:
    if body.thinking_token_budget is not None:
        return None if body.thinking_token_budget == -1 else body.thinking_token_budget
    return None if body.thinking is None else body.thinking.budget_tokens


def _thinking_fields(body: ChatBody) -> list[str]:
    fields = {
        "reasoning_effort": body.reasoning_effort,
        "enable_thinking": body.enable_thinking,
        "think": body.think,
        "thinking": body.thinking,
        "thinking_token_budget": body.thinking_token_budget,
    }
    return [name for name, value in fields.items() if value is not None]
