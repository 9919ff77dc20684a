"""POST /v1/embeddings: texts to tokens, vectors to the answer's bytes, and what may end the work."""

import base64
from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from engine.api.prompt import Prompt
from engine.errors import EngineNotReadyError, InputLengthError, RequestError
from engine.run.embedding import unit_length
from server.api.embeddings.body import EmbeddingsBody
from server.errors import AnswerCancelledError
from server.fields.parameters import Parameter, honoured, ignored, ignored_header, refused, table_of
from server.generate.generation import admit, context_of
from server.generate.plan import checked_ids
from server.generate.stream import unless_client_leaves
from server.logs import RequestLog
from server.served import Embeddings, ServedModel
from server.serving import OpenRequest
from server.wire.body import ignored_of
from server.wire.json_text import answer_of

Vector = NDArray[np.float32]

EMBEDDING_PARAMETERS: dict[str, Parameter] = table_of(
    *honoured("model", "input", "encoding_format", "dimensions", "add_special_tokens", "priority", "cache_salt"),
    *ignored("user", "metadata", "request_id", "keep_alive"),
    # how the vectors are scaled and written
    refused("embd_normalize", 2),
    refused("normalize", True),
    refused("use_activation", True),
    refused("embed_dtype", "float32"),
    refused("endianness", "native", "little"),
    # what is embedded
    refused("messages", []),
    refused("instructions", ""),
    refused("input_type"),
    refused("prompt_name"),
    refused("mm_processor_kwargs", {}),
    refused("truncate", False),
    refused("truncate_prompt_tokens"),
)


def text_tokens(body: EmbeddingsBody, model: ServedModel) -> list[Prompt]:
    """The tokens of each text. Blocking; raises RequestError for what cannot be done."""
    if body.dimensions is not None and body.dimensions > model.embedding_size:
        raise RequestError(
            f"dimensions: this model's embeddings have {model.embedding_size} (got {body.dimensions}).",
            param="dimensions",
            code="integer_above_max_value",
        )
    return [_tokens(text, path, body, model) for path, text in body.texts]


def _tokens(text: str | list[int], path: str, body: EmbeddingsBody, model: ServedModel) -> Prompt:
    if isinstance(text, list):
        tokens = checked_ids(text, model.vocab_size, path)
    elif body.add_special_tokens:
        tokens = model.tokenizer.encode_document(text)
    else:
        tokens = model.tokenizer.encode(text, parse_special=True)
    if not tokens:
        raise RequestError(f"{path}: the text has no tokens; send at least one.", param=path)
    if len(tokens) > model.context_length:
        raise InputLengthError(len(tokens), model.context_length, param=path)
    return Prompt(tuple(tokens))


def embedding_list(vectors: Sequence[Vector], body: EmbeddingsBody, model: ServedModel, tokens: int) -> bytes:
    """The answer's bytes, encoded vector by vector, so that other threads run in between. Blocking."""
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(_cut(vector, body.dimensions), body)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps({"object": "list", "data": data, "model": model.id, "usage": usage})


def _cut(vector: Vector, dimensions: int | None) -> Vector:
    """The first dimensions at unit length, as models that are trained for fewer mean them."""
    return vector if dimensions is None else unit_length(vector[:dimensions])


def _encoded(vector: Vector, body: EmbeddingsBody) -> object:
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return orjson.Fragment(orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY))


class EmbeddingRequest(OpenRequest):
    """The embeddings of one request while they are made."""

    def __init__(self, embeddings: Embeddings, log: RequestLog, caller: str) -> None:
        super().__init__(log, caller)
        self._embeddings = embeddings

    def abort(self) -> None:
        self._embeddings.abort()

    async def vectors(self, receive: Receive) -> list[Vector]:
        """All vectors, unless the client leaves before; whatever ends the work closes the request."""
        try:
            vectors = await self._vectors(receive)
            self.log.end = "stop"
            return vectors
        except Exception as error:
            self.note_failure(error)
            raise
        finally:
            self.close()

    async def _vectors(self, receive: Receive) -> list[Vector]:
        try:
            return await unless_client_leaves(receive, self._embeddings.vectors())
        except EngineNotReadyError:
            if self.is_cancelled:
                raise AnswerCancelledError("These embeddings were cancelled by a request to do so.") from None
            raise


async def create_embeddings(http: Request, body: EmbeddingsBody) -> Response:
    context = context_of(http, body.model, "embd-")
    model = context.model
    texts = await run_in_threadpool(text_tokens, body, model)

    def submit(log: RequestLog) -> EmbeddingRequest:
        embeddings = model.service.embed(
            context.id,
            texts,
            priority=body.priority,
            caller=context.caller_bytes,
            cache_salt=body.cache_salt or "",
        )
        return EmbeddingRequest(embeddings, log, context.caller)

    request = admit(http, context, submit, prompts=texts, choices=len(texts), ignored=ignored_of(http))
    vectors = await request.vectors(http.receive)
    content = await run_in_threadpool(embedding_list, vectors, body, model, request.log.prompt_tokens)
    return answer_of(content, headers=ignored_header(ignored_of(http)))
