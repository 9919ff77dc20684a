"""The tools of a request, as far as the engine has to know them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that the model may call."""

    name: str
    parameters: Mapping[str, object]  # JSON schema of an object
    description: str = ""
    strict: bool = False  # a schema that cannot be enforced in full is refused, not loosened


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether a call may or must be made, and of what."""

    mode: Literal["none", "auto", "required"]
    names: tuple[str, ...]  # functions that may be called
