"""GET /slots: what each lane of the batch is doing."""

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.run.status import LaneStatus
from server.api.status.answers import Slot
from server.serving import Serving

router = APIRouter()


@router.get("/slots")
async def read_slots(request: Request) -> Response:
    """Lanes have no numbers in the engine: the busy ones come first."""
    serving: Serving = request.app.state.serving
    model = serving.model
    status = model.service.status()
    caller = bytes.fromhex(request.scope["octavo.caller"])
    busy = [
        _own(index, lane, model.context_length) if lane.caller == caller else _others(index, model.context_length)
        for index, lane in enumerate(status.running)
    ]
    idle = range(len(busy), status.lanes)
    slots = busy + [Slot(id=index, is_processing=False, n_ctx=model.context_length) for index in idle]
    return JSONResponse([slot.model_dump() for slot in slots])


def _own(index: int, lane: LaneStatus, context_length: int) -> Slot:
    return Slot(
        id=index,
        is_processing=True,
        n_ctx=context_length,
        state=_state(lane),
        id_task=lane.id,
        prompt_tokens=lane.prompt_tokens,
        computed_tokens=lane.computed_tokens,
        generated_tokens=lane.generated_tokens,
        cached_tokens=lane.cached_tokens,
        preemptions=lane.preemptions,
    )


def _others(index: int, context_length: int) -> Slot:
    """With API keys, nobody learns what another's request is called and how long it is."""
    return Slot(id=index, is_processing=True, n_ctx=context_length, state="busy")


def _state(lane: LaneStatus) -> Literal["prefill", "decode"]:
    """The kind of its rows in a step. What gave its memory to others is prefilled again, with what it had generated."""
    behind = lane.prompt_tokens + lane.generated_tokens - lane.computed_tokens
    return "decode" if lane.generated_tokens and behind <= 1 else "prefill"
