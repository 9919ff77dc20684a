"""The answers of GET /v1/models: OpenAI's fields, and what clients look for beside them."""

from server.fields.common import LazyModel
from server.served import ServedModel


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


def model_card(model: ServedModel, name: str) -> ModelCard:
    meta = ModelMeta(
        n_ctx=model.context_length,
        n_vocab=model.vocab_size,
        size=model.file_bytes,
        architecture=model.architecture,
        types=model.weight_types,
    )
    return ModelCard(id=name, created=model.created, root=model.id, max_model_len=model.context_length, meta=meta)
