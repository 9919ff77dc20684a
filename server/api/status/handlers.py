"""What the server tells of itself and of its model, and the end of a request by its id."""

from collections.abc import Mapping, Sequence
from typing import Literal

from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from engine.run.status import LaneStatus
from engine.version import VERSION
from server.api.status.answers import (
    Cancelled,
    Capabilities,
    GenerationDefaults,
    GenerationSettings,
    Limits,
    ModelAbilities,
    ModelCard,
    ModelList,
    ModelMeta,
    ParameterLists,
    Props,
    Slot,
)
from server.errors import UnknownRequestError
from server.fields.parameters import Handling, Parameter
from server.fields.sampling import props_values
from server.metrics import Metrics
from server.served import ServedModel
from server.serving import Phase, Serving
from server.settings import ServingOptions
from server.wire.endpoint import Endpoint
from server.wire.json_text import answer_of, json_answer
from server.wire.limits import MAX_DEPTH


async def root(http: Request) -> Response:
    return json_answer({"name": "octavo", "api": "/v1"})


async def health(http: Request) -> Response:
    """200 from the first moment; 503 once draining, so that load balancers turn away first, or the engine is dead."""
    serving: Serving = http.app.state.serving
    if serving.draining:
        return json_answer({"status": Phase.DRAINING}, status=503)
    if not serving.alive:
        return json_answer({"status": "dead"}, status=503)
    return json_answer({"status": "ok"})


async def ready(http: Request) -> Response:
    serving: Serving = http.app.state.serving
    is_ready = serving.phase is Phase.READY and serving.alive
    body = {"status": serving.phase, "progress": round(serving.progress, 4)}
    return json_answer(body, status=200 if is_ready else 503)


async def list_models(http: Request) -> Response:
    model = _serving(http).model
    return _json(ModelList(data=[_model_card(model, name) for name in (model.id, *model.aliases)]))


async def get_model(http: Request) -> Response:
    name = http.path_params["name"]
    model = _serving(http).model_named(name)
    return _json(_model_card(model, name if name in model.aliases else model.id))


def _serving(http: Request) -> Serving:
    serving: Serving = http.app.state.serving
    return serving


def _model_card(model: ServedModel, name: str) -> ModelCard:
    meta = ModelMeta(
        n_ctx=model.context_length,
        n_vocab=model.vocab_size,
        size=model.file_bytes,
        architecture=model.architecture,
        types=model.weight_types,
    )
    return ModelCard(id=name, created=model.created, root=model.id, max_model_len=model.context_length, meta=meta)


async def read_capabilities(http: Request) -> Response:
    serving: Serving = http.app.state.serving
    model = serving.model
    capabilities = Capabilities(
        model=model.id,
        abilities=_abilities(model),
        limits=_limits(model, serving.options),
        unknown_parameters="refused" if serving.options.strict_params else "ignored",
        parameters=_parameters(http),
    )
    return _json(capabilities)


def _parameters(http: Request) -> dict[str, ParameterLists]:
    endpoints: Sequence[Endpoint] = http.app.state.endpoints
    return {one.plain_path: _lists(one.parameters) for one in endpoints if one.parameters is not None}


def _abilities(model: ServedModel) -> ModelAbilities:
    tools = model.format.tools
    return ModelAbilities(
        chat=model.template is not None,
        tools=tools is not None,
        tool_format=tools.name if tools is not None else None,
        tools_in_words=model.format.tools_in_words,
        thinking=model.format.thinking is not None,
        structured_output=True,
    )


def _lists(table: Mapping[str, Parameter]) -> ParameterLists:
    def names(handling: Handling) -> list[str]:
        return sorted(row.name for row in table.values() if row.handling is handling)

    return ParameterLists(
        enforced=names(Handling.HONOURED), ignored=names(Handling.IGNORED), refused=names(Handling.REFUSED)
    )


async def read_props(http: Request) -> Response:
    serving: Serving = http.app.state.serving
    model = serving.model
    props = Props(
        default_generation_settings=GenerationSettings(n_ctx=model.context_length, params=_defaults(model)),
        total_slots=model.lanes,
        model_alias=model.id,
        aliases=list(model.aliases),
        chat_template=model.template.source if model.template is not None else None,
        build_info=f"octavo {VERSION}",
        fingerprint=model.fingerprint,
        architecture=model.architecture,
        weight_types=model.weight_types,
        vocab_size=model.vocab_size,
        threads=model.threads,
        isa=model.isa,
        limits=_limits(model, serving.options),
    )
    return _json(props)


def _limits(model: ServedModel, options: ServingOptions) -> Limits:
    return Limits(
        context_length=model.context_length,
        max_n=options.max_n,
        max_body_bytes=options.max_body_bytes,
        max_json_depth=MAX_DEPTH,
    )


def _defaults(model: ServedModel) -> GenerationDefaults:
    return GenerationDefaults.model_validate(props_values(model.sampling))


async def read_slots(http: Request) -> Response:
    """Lanes have no numbers in the engine: the busy ones come first."""
    serving: Serving = http.app.state.serving
    model = serving.model
    status = model.service.status()
    caller = bytes.fromhex(http.scope["octavo.caller"])
    busy = [
        _own(index, lane, model.context_length) if lane.caller == caller else _others(index, model.context_length)
        for index, lane in enumerate(status.running)
    ]
    idle = range(len(busy), status.lanes)
    slots = busy + [Slot(id=index, is_processing=False, n_ctx=model.context_length) for index in idle]
    return json_answer([slot.model_dump() for slot in slots])


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


async def read_metrics(http: Request) -> Response:
    metrics: Metrics = http.app.state.metrics
    encode, content_type = choose_encoder(http.headers.get("accept", ""))
    return Response(encode(metrics.registry), headers={"Content-Type": content_type})


async def cancel_request(http: Request) -> Response:
    """End what is being answered under this id: the stream or the answer ends with an error that says so."""
    id = http.path_params["id"]
    serving: Serving = http.app.state.serving
    # Only the caller's own: an id that somebody else's key opened is as unknown as one that never was.
    ended = serving.open_requests.cancel(id, http.scope["octavo.caller"])
    if not ended:
        raise UnknownRequestError(id)
    return _json(Cancelled(cancelled=ended))


def _json(answer: BaseModel) -> Response:
    return answer_of(answer.model_dump_json().encode())
