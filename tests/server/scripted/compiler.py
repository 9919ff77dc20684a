"""Grammars for the scripted engine, which holds no answer to them."""

from dataclasses import dataclass, field

from engine.api.constraint import Matcher


@dataclass
class ScriptedConstraint:
    """A grammar that was asked for; nothing is held to it."""

    grammar: str

    def start(self) -> Matcher:
        raise AssertionError("scripted answers are held to no grammar")


@dataclass
class ScriptedCompiler:
    """Takes every grammar, and remembers them."""

    grammars: list[tuple[str, str]] = field(default_factory=list)  # (grammar, param)

    def compile(self, grammar: str, *, param: str) -> ScriptedConstraint:
        self.grammars.append((grammar, param))
        return ScriptedConstraint(grammar)
