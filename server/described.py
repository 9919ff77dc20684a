"""Answers that a pydantic type describes, as JSON."""

from pydantic import BaseModel
from starlette.responses import Response


def described(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
