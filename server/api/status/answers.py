"""The answers of the routes that tell about the server itself, and of the one that cancels a request."""

from typing import Literal

from server.fields.common import Answer, LazyModel, with_fields
from server.fields.sampling import props_fields


class Root(Answer):
    name: str
    api: str


class Health(LazyModel):
    status: str


class Readiness(LazyModel):
    status: str
    progress: float  # of the load, from 0 to 1


class Slot(LazyModel):
    """One lane of the batch; llama-server's names where it has them. Of another key's request: that it is there."""

    id: int
    is_processing: bool
    n_ctx: int
    state: Literal["idle", "prefill", "decode", "busy"] = "idle"  # busy: with another key's request
    id_task: str | None = None  # the id of the answer
    prompt_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, taken from the prefix cache
    preemptions: int = 0  # how often it gave its memory to others


@with_fields({**props_fields(), "n_predict": (int, -1)})  # -1: up to the end of the context
class GenerationDefaults(LazyModel):
    """What a request gets that does not say otherwise."""


class GenerationSettings(LazyModel):
    n_ctx: int
    params: GenerationDefaults


class Modalities(LazyModel):
    vision: bool = False
    audio: bool = False


class Limits(LazyModel):
    """What a request may not go beyond."""

    context_length: int
    max_n: int
    max_body_bytes: int
    max_json_depth: int


class Props(LazyModel):
    """Facts of the server and its model, in the shape of llama-server's /props."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    aliases: list[str]
    chat_template: str | None
    modalities: Modalities = Modalities()
    build_info: str
    fingerprint: str
    architecture: str
    weight_types: str
    vocab_size: int
    threads: int
    isa: str
    limits: Limits


class Cancelled(LazyModel):
    """The answers that were ended."""

    cancelled: list[str]


class ParameterLists(LazyModel):
    """What becomes of each parameter of one API. A refused one is taken with the values that ask for nothing."""

    enforced: list[str]
    ignored: list[str]
    refused: list[str]


class ModelAbilities(LazyModel):
    chat: bool
    tools: bool
    tool_format: str | None
    tools_in_words: bool  # the chat template has no place for tools: they stand in the system message
    thinking: bool
    structured_output: bool


class Capabilities(LazyModel):
    model: str
    abilities: ModelAbilities
    limits: Limits
    unknown_parameters: Literal["ignored", "refused"]
    parameters: dict[str, ParameterLists]  # by path


class ModelMeta(LazyModel):
    n_ctx: int
    n_vocab: int
    size: int  # bytes of the model file
    architecture: str
    types: str  # shares of the weight types, as "Q4_1 81%, Q8_0 19%"


class ModelCard(LazyModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "octavo"
    root: str  # the model that answers, where the id is an alias
    max_model_len: int
    meta: ModelMeta


class ModelList(LazyModel):
    object: str = "list"
    data: list[ModelCard]
