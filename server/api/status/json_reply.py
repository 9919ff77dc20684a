"""The answer of a route that tells one object."""

from pydantic import BaseModel
from starlette.responses import Response


def json_reply(answer: BaseModel) -> Response:
    """Made here and not by FastAPI, which would import all of Pydantic's first version to look at the type."""
    return Response(answer.model_dump_json(), media_type="application/json")
