"""How a token is drawn from the logits: every sampling parameter, its default, its bounds and its names outside.

A new number is one field of Sampling, and what the sampler or the logit rules do with that field. The bodies of the
APIs, the tables of their parameters, the defaults of a model's file and /props are made from the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

Api = Literal["completions", "messages", "responses"]  # completions: of chats and of texts
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The values that a number may have."""

    ge: float | None = None  # at least this
    gt: float | None = None  # more than this
    le: float  # at most this

    def hold(self, value: float) -> bool:
        """Whether the value is within the bounds; NaN never is."""
        return value <= self.le and (self.ge is None or value >= self.ge) and (self.gt is None or value > self.gt)

    def __str__(self) -> str:
        return f"from {self.ge:g} to {self.le:g}" if self.gt is None else f"above {self.gt:g}, to {self.le:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """What the world outside of the engine knows of one numeric field of Sampling."""

    bounds: Bounds
    apis: frozenset[Api] = frozenset(("completions",))
    bounds_in_messages: Bounds | None = None  # where the Messages API has bounds of its own
    other_names: tuple[str, ...] = ()  # in a request, beside the field's own; the first name that is sent counts
    floor: float | None = None  # a smaller value means this one
    file_key: str | None = None  # in GGUF, after "general.sampling."; None: a model's file states no default
    props_name: str | None = None  # in /props, which shows the numbers that have a default; None: the field's own

    def bounds_in(self, api: Api) -> Bounds:
        """The bounds of a request to an API."""
        return self.bounds_in_messages or self.bounds if api == "messages" else self.bounds

    def read(self, value: float) -> float:
        """The value as Sampling holds it, given one that is within the bounds."""
        return value if self.floor is None else max(value, self.floor)


_ALL = frozenset[Api](("completions", "messages", "responses"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one token is drawn from the logits. Each default is neutral: it changes nothing.

    The order: penalties over generated tokens (repetition over the prompt's too), then logit_bias, then bans and the
    constraint's mask, then temperature, top_k, min_p, top_p. The engine does not check the bounds.
    """

    # 0 is greedy: the largest logit, ties to the lowest token id
    temperature: Annotated[
        float,
        Number(bounds=Bounds(ge=0, le=2), apis=_ALL, bounds_in_messages=Bounds(ge=0, le=1), file_key="temp"),
    ] = 1.0
    # 0 is off
    top_k: Annotated[
        int,
        Number(
            bounds=Bounds(ge=-1, le=_MAX_INT32),
            apis=_ALL,
            bounds_in_messages=Bounds(ge=0, le=_MAX_INT32),
            floor=0,
            file_key="top_k",
        ),
    ] = 0
    # 1 is off
    top_p: Annotated[float, Number(bounds=Bounds(gt=0, le=1), apis=_ALL, file_key="top_p")] = 1.0
    # 0 is off
    min_p: Annotated[float, Number(bounds=Bounds(ge=0, le=1), apis=_ALL, file_key="min_p")] = 0.0
    # any int64; None draws one at random
    seed: Annotated[int | None, Number(bounds=Bounds(ge=-(2**63), le=2**63 - 1), apis=_ALL)] = None
    # 0 is off
    frequency_penalty: Annotated[float, Number(bounds=Bounds(ge=-2, le=2))] = 0.0
    # 0 is off
    presence_penalty: Annotated[float, Number(bounds=Bounds(ge=-2, le=2))] = 0.0
    # 1 is off
    repetition_penalty: Annotated[
        float,
        Number(
            bounds=Bounds(gt=0, le=10),
            other_names=("repeat_penalty",),
            file_key="penalty_repeat",
            props_name="repeat_penalty",
        ),
    ] = 1.0
    # These are no numbers: server/generate/sampling.py reads them from a request.
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit); -100 bans
    allowed_tokens: tuple[int, ...] | None = None  # None: all
    banned_sequences: tuple[tuple[int, ...], ...] = ()  # bad words as tokens: the last is never drawn after the rest


NEUTRAL = Sampling()  # of a request and a file that say nothing
_HINTS = get_type_hints(Sampling, include_extras=True)
NUMBERS: Mapping[str, Number] = {
    name: hint.__metadata__[0] for name, hint in _HINTS.items() if hasattr(hint, "__metadata__")
}
WHOLE_NUMBERS = frozenset(name for name in NUMBERS if _HINTS[name].__origin__ in (int, int | None))
PROPS_NAMES: Mapping[str, str] = {
    name: number.props_name or name for name, number in NUMBERS.items() if getattr(NEUTRAL, name) is not None
}
