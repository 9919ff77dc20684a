"""GET /slots: what each lane of the batch is doing."""

from fastapi import APIRouter
from starlette.requests import Request

from server.protocol.operations import Slot
from server.serving import Serving

router = APIRouter()


@router.get("/slots")
async def read_slots(request: Request) -> list[Slot]:
    """Lanes have no numbers in the engine: the busy ones come first."""
    serving: Serving = request.app.state.serving
    model = serving.model
    status = model.service.status()
    busy = [
        Slot(
            id=index,
            is_processing=True,
            n_ctx=model.context_length,
            state="decode" if lane.generated_tokens else "prefill",
            id_task=lane.id,
            prompt_tokens=lane.prompt_tokens,
            computed_tokens=lane.computed_tokens,
            generated_tokens=lane.generated_tokens,
        )
        for index, lane in enumerate(status.running)
    ]
    idle = range(len(busy), status.lanes)
    return busy + [Slot(id=index, is_processing=False, n_ctx=model.context_length) for index in idle]
