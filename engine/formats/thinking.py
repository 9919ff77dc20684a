"""How a template's own switches for thinking are called, and which variables it reads at all."""

import re
from functools import lru_cache

from engine.sandbox.template_process import shared_process
from engine.text.chat_template import LONGEST_SOURCE

_LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
_REFUSES_EFFORT = re.compile(r"raise_exception\([^)]*effort")
_WORD = re.compile(r"[A-Za-z_]\w*")


def thinking_arguments(template_source: str, enabled: bool, effort: str | None) -> dict[str, object]:
    """The template's variables that switch thinking on or off; only those that it reads.

    `effort` is what the request calls it, from "minimal" to "max"; it says nothing where thinking is off.
    """
    arguments: dict[str, object] = {
        "enable_thinking": enabled,
        "thinking": enabled,
        "thinking_mode": "enabled" if enabled else "disabled",
    }
    if not enabled:
        arguments |= {"thinking_budget": 0, "reasoning": False}
    level = _level(template_source, effort) if enabled else _least_level(template_source)
    if level is not None:
        arguments |= {"reasoning_effort": level, "thinking_effort": level}
    read = template_variables(template_source)
    return {name: value for name, value in arguments.items() if name in read}


def _level(source: str, effort: str | None) -> str | None:
    """The effort in the template's words: the nearest that it names, where it refuses all others."""
    if effort is None:
        return "high" if _names("no_think", source) else None
    if _REFUSES_EFFORT.search(source) and effort in _LEVELS and (named := [x for x in _LEVELS if _names(x, source)]):
        place = _LEVELS.index(effort)
        return min(named, key=lambda level: (abs(_LEVELS.index(level) - place), -_LEVELS.index(level)))
    return effort


def _least_level(source: str) -> str | None:
    """What the template calls thinking as little as it can; None where it names nothing of the kind."""
    return next((level for level in ("no_think", "none", "minimal", "low") if _names(level, source)), None)


def _names(level: str, source: str) -> bool:
    return f"'{level}'" in source or f'"{level}"' in source


@lru_cache(maxsize=16)
def template_variables(source: str) -> frozenset[str]:
    """The names that the template takes from its caller; where it cannot be told, every word in it is one."""
    if len(source) > LONGEST_SOURCE:
        return frozenset()
    found = shared_process().variables(source)
    return frozenset(_WORD.findall(source)) if found is None else found
