"""The sampling numbers of a body, made from engine/api/sampling.py, which is the one list of them."""

from typing import Annotated, Any

from pydantic import Field

from engine.api.sampling import NEUTRAL, NUMBERS, PROPS_NAMES, WHOLE_NUMBERS, Api, Number, Sampling
from server.fields.common import WHOLE, ProtocolModel


class SampledBody(ProtocolModel):
    """A body that gets its sampling numbers from `sampling_fields`."""

    @property
    def stated_sampling(self) -> dict[str, Any]:
        """The numbers that the request states, by the names of Sampling's fields, within their bounds."""
        stated = {}
        for name, number in NUMBERS.items():
            sent = next((key for key in _keys(name, number) if key in self.model_fields_set), None)
            if sent is not None:
                stated[name] = number.read(getattr(self, sent))
        return stated


def sampling_keys(api: Api) -> list[str]:
    """What the sampling numbers are called in a request to an API."""
    return [key for name, number in NUMBERS.items() if api in number.apis for key in _keys(name, number)]


def sampling_fields(api: Api, *, with_defaults: bool = False) -> dict[str, Any]:
    """The sampling numbers of a request to an API, for `with_fields`; without defaults, each is None unless sent."""
    fields: dict[str, Any] = {}
    for name, number in NUMBERS.items():
        if api in number.apis:
            default = getattr(NEUTRAL, name) if with_defaults and not number.other_names else None
            checked = _annotation(name, number, api)
            fields |= {key: (checked | None if default is None else checked, default) for key in _keys(name, number)}
    return fields


def props_fields() -> dict[str, Any]:
    """The sampling numbers that /props shows, for `with_fields`."""
    return {key: (int if name in WHOLE_NUMBERS else float, ...) for name, key in PROPS_NAMES.items()}


def props_values(sampling: Sampling) -> dict[str, float]:
    """The values of those fields."""
    return {key: getattr(sampling, name) for name, key in PROPS_NAMES.items()}


def _annotation(name: str, number: Number, api: Api) -> Any:
    bounds = number.bounds_in(api)
    field = Field(ge=bounds.ge, gt=bounds.gt, le=bounds.le)
    return Annotated[int, field, WHOLE] if name in WHOLE_NUMBERS else Annotated[float, field]


def _keys(name: str, number: Number) -> tuple[str, ...]:
    return (name, *number.other_names)
