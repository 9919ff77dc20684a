"""POST /v1/requests/{id}/cancel: end an answer by its id, or by the X-Request-Id of its request."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api.status.answers import Cancelled
from server.api.status.json_reply import json_reply
from server.errors import UnknownRequestError
from server.serving import Serving

router = APIRouter()


@router.post("/requests/{id:path}/cancel")
async def cancel_request(request: Request) -> Response:
    """End what is being answered under this id: the stream or the answer ends with an error that says so."""
    id = request.path_params["id"]
    serving: Serving = request.app.state.serving
    # Only the caller's own: an id that somebody else's key opened is as unknown as one that never was.
    ended = serving.open_requests.cancel(id, request.scope["octavo.caller"])
    if not ended:
        raise UnknownRequestError(id)
    return json_reply(Cancelled(cancelled=ended))
