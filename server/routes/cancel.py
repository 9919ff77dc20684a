"""POST /v1/requests/{id}/cancel: end an answer by its id, or by the X-Request-Id of its request."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.described import described
from server.errors import UnknownRequestError
from server.protocol.operations import Cancelled
from server.serving import Serving


async def cancel_request(request: Request) -> Response:
    """End what is being answered under this id: the stream or the answer ends with an error that says so."""
    id = request.path_params["id"]
    serving: Serving = request.app.state.serving
    # Only the caller's own: an id that somebody else's key opened is as unknown as one that never was.
    ended = serving.open_requests.cancel(id, request.scope["octavo.caller"])
    if not ended:
        raise UnknownRequestError(id)
    return described(Cancelled(cancelled=ended))


ROUTES = (Route("/requests/{id:path}/cancel", cancel_request, methods=["POST"]),)
