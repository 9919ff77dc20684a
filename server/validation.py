"""What pydantic found wrong with a body, as one error of ours: a dotted path, a code, a bounded sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from engine.errors import RequestError
from server.errors import clip

CODES = {
    "missing": "missing_required_parameter",
    "missing_field": "missing_required_parameter",
    "missing_source": "missing_required_parameter",
    "union_tag_not_found": "missing_required_parameter",
    "string_too_long": "string_above_max_length",
    "string_too_short": "string_below_min_length",
    "too_long": "array_above_max_length",
    "too_short": "array_below_min_length",
    "unsupported_value": "unsupported_value",
    "invalid_type": "invalid_type",
}
BOUNDS = {
    "greater_than": "below_min_value",
    "greater_than_equal": "below_min_value",
    "less_than": "above_max_value",
    "less_than_equal": "above_max_value",
}


def request_error(error: ValidationError, body: Mapping[str, object]) -> RequestError:
    """The first problem; further ones are only counted, so that a large bad body has a small answer."""
    first = error.errors(include_url=False)[0]
    others = error.error_count() - 1
    param = _path(first, body)
    message = f"{param or 'The body'}: {_sentence(first)}{_echo(first)}."
    if others:
        message += f" There {'is 1 more problem' if others == 1 else f'are {others} more problems'}."
    return RequestError(message, param=param, code=_code(first))


def _code(problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind in BOUNDS:
        bound = next(iter(problem["ctx"].values()))
        return f"{'integer' if isinstance(bound, int) else 'decimal'}_{BOUNDS[kind]}"
    if kind in CODES:
        return CODES[kind]
    return "invalid_type" if kind.endswith(("_type", "_parsing", "_from_float")) else "invalid_value"


def _sentence(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "missing":
            return "this field is required"
        case "union_tag_not_found":
            return "this field is required"
        case "union_tag_invalid":
            return f"must be one of {context['expected_tags']}"
        case _:
            return problem["msg"].removeprefix("Input ").rstrip(".")


def _echo(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    value = context.get("tag", problem["input"])
    if problem["type"] in ("missing", "union_tag_not_found") or not isinstance(value, str | int | float):
        return ""
    return f" (got {clip(repr(clip(value) if isinstance(value, str) else value), 210)})"


def _path(problem: ErrorDetails, body: Mapping[str, object]) -> str | None:
    """`messages[2].content[0].type`: the steps of the location that exist in the body, without pydantic's own."""
    context = problem.get("ctx", {})
    if "param" in context:
        return str(context["param"])
    steps = list(_real_steps(problem["loc"], body))
    if problem["type"] == "missing":
        steps.append(problem["loc"][-1])
    if "discriminator" in context and problem["type"].startswith("union_tag"):
        steps.append(str(context["discriminator"]).strip("'"))
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or None


def _real_steps(location: Sequence[int | str], body: Any) -> Sequence[int | str]:
    steps: list[int | str] = []
    for step in location:
        inside_object = isinstance(body, Mapping) and body.get(step) is not None
        inside_array = isinstance(body, list) and isinstance(step, int) and step < len(body)
        if inside_object or inside_array:
            steps.append(step)
            body = body[step]
    return steps
