"""`octavo logits`: the logits of given tokens, as a NumPy file, for engineers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from engine.errors import OctavoError
from server.cli.options import DEFAULT_KV_TYPE, Isa, KvType, ModelArgument, Quantize, Threads, sentence


class Activations(StrEnum):
    """How matmul inputs are held."""

    INT8 = "int8"
    F32 = "f32"


def register(app: typer.Typer) -> None:
    app.command()(logits)


def logits(
    model: Annotated[str, ModelArgument],
    tokens: Annotated[str, typer.Option(help="Token ids, like 100,101,102.")],
    out: Annotated[Path, typer.Option(help=sentence("The .npy file to write: float32", "tokens, vocabulary"))],
    isa: Isa = None,
    threads: Threads = None,
    chunk: Annotated[int, typer.Option(help="Tokens fed a step; changes no bit.")] = 64,
    activations: Annotated[Activations, typer.Option(help="f32 is the slow reference.")] = Activations.INT8,
    kv_type: KvType = DEFAULT_KV_TYPE,
    quantize: Quantize = None,
) -> None:
    """Write the logits after each of the given tokens."""
    import numpy as np

    from engine.measure.score import score_tokens
    from engine.weights.catalogue import resolve_model
    from engine.weights.draft_head import open_trunk
    from engine.weights.quantized_file import quantized

    ids = parse_ids(tokens)
    with quantized(open_trunk(resolve_model(model).path), quantize) as file:
        result = score_tokens(
            file, ids, chunk=chunk, isa=isa, threads=threads, activations=activations.value, kv_type=kv_type
        )
    try:
        np.save(out, result)
    except OSError as error:
        raise OctavoError(f"{out} cannot be written: {error.strerror}.") from error
    typer.echo(f"{out}: float32 {list(result.shape)}")


def parse_ids(text: str) -> list[int]:
    """Read a list of numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise OctavoError(f"{text!r} is no list of numbers; write them like 100,101,102.") from error
