"""A chat as its template wrote it, with the marks that tell the template's own control tokens from quoted ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """Special tokens inside the messages hold a guard character, which occurs nowhere else; the scaffold's do not."""

    guarded: str
    guard: str

    @property
    def text(self) -> str:
        """The chat as people read it, without guards."""
        return self.guarded.replace(self.guard, "")
