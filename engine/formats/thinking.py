"""How a template's own switches for thinking are called, and which variables it reads at all."""

import re
from collections.abc import Iterable

from jinja2 import TemplateSyntaxError, nodes

from engine.text.chat_template import LONGEST_SOURCE
from engine.text.template_worker import template_environment

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


def template_variables(source: str) -> frozenset[str]:
    """The names that the template takes from its caller. The template is only parsed, never run."""
    words = frozenset(_WORD.findall(source[:LONGEST_SOURCE]))
    environment = template_environment()
    try:
        tree = environment.parse(source[:LONGEST_SOURCE])
        found = _Names()
        found.visit_all(tree.body, set())
    except (TemplateSyntaxError, RecursionError):
        return words  # too deep to be told: any word in it may be a variable
    return frozenset(found.read - set(environment.globals))


class _Names:
    """Names that are read before the template itself sets them, in the order of its text."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def visit_all(self, tree: Iterable[nodes.Node], known: set[str]) -> None:
        for node in tree:
            self.visit(node, known)

    def visit(self, node: nodes.Node, known: set[str]) -> None:
        """Follow one node; `known` are the names set so far in its scope, and what it sets is added."""
        if isinstance(node, nodes.Name):
            self._name(node, known)
        elif isinstance(node, nodes.Assign):
            self.visit(node.node, known)
            self.visit(node.target, known)
        elif isinstance(node, nodes.If):
            self._branches(node, known)
        elif isinstance(node, nodes.For):
            self._loop(node, known)
        elif isinstance(node, nodes.Macro):
            known.add(node.name)
            self.visit_all(node.iter_child_nodes(), {*known, *(each.name for each in node.args), "caller"})
        elif isinstance(node, nodes.AssignBlock | nodes.CallBlock | nodes.FilterBlock | nodes.Scope):
            self.visit_all(node.iter_child_nodes(exclude=("target",)), set(known))
            if isinstance(node, nodes.AssignBlock):
                self.visit(node.target, known)
        else:
            self.visit_all(node.iter_child_nodes(), known)

    def _name(self, node: nodes.Name, known: set[str]) -> None:
        if node.ctx != "load":
            known.add(node.name)
        elif node.name not in known:
            self.read.add(node.name)

    def _branches(self, node: nodes.If, known: set[str]) -> None:
        """Only what every branch sets is set afterwards."""
        self.visit(node.test, known)
        ends = []
        bodies: list[Iterable[nodes.Node]] = [node.body, *([each] for each in node.elif_), node.else_]
        for body in bodies:
            scope = set(known)
            self.visit_all(body, scope)
            ends.append(scope)
        known |= set.intersection(*ends)

    def _loop(self, node: nodes.For, known: set[str]) -> None:
        self.visit(node.iter, known)
        scope = {*known, "loop"}
        self.visit(node.target, scope)
        if node.test is not None:
            self.visit(node.test, scope)
        self.visit_all(node.body, scope)
        self.visit_all(node.else_, set(known))
