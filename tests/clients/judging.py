"""The types of an SDK as the judge of what the server sent."""

from functools import cache
from typing import Any, TypeVar

from openai.types import Completion
from pydantic import BaseModel, TypeAdapter, ValidationError

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# Null in OpenAI's own text completions, of which the SDK's types do not know: while a stream goes on, and for the
# first token of a prompt.
NULLS = {
    ("choices", "finish_reason"),
    ("choices", "logprobs", "token_logprobs"),
    ("choices", "logprobs", "top_logprobs"),
}


def judged(answer: M) -> M:
    """An answer whose every field is of its type; the SDKs themselves build one of whatever comes."""
    type(answer).model_validate(sent(answer), strict=True)
    return answer


def judged_as(kind: Any, answer: T) -> T:
    """The same, for one of a union or for a type that is generic."""
    assert isinstance(answer, BaseModel)
    _adapter(kind).validate_python(sent(answer), strict=True)
    return answer


def judged_text(answer: Completion) -> Completion:
    """The same, for text completions."""
    try:
        return judged(answer)
    except ValidationError as error:
        for wrong in error.errors():
            place = tuple(step for step in wrong["loc"] if isinstance(step, str))
            if wrong["input"] is not None or place not in NULLS:
                raise
    return answer


def sent(answer: BaseModel) -> dict[str, Any]:
    """The fields as they came; one that did not come is not there."""
    return answer.model_dump(exclude_unset=True, by_alias=True)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
