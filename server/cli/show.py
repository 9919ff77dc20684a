"""`octavo show`: what a model is, what its steps read, and how fast this machine's memory lets it be."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress
from rich.table import Table

from engine.api.config import EngineConfig
from server.cli.options import DEFAULT_KV_TYPE, DraftHead, KvType, Model, sentence

if TYPE_CHECKING:
    from engine.loading.model_card import ModelCard
    from engine.weights.files.weights_file import WeightsFile

BATCHES = (1, 4, 8)


def register(app: typer.Typer) -> None:
    app.command()(show)


def show(
    model: Model = None,
    kv_type: KvType = DEFAULT_KV_TYPE,
    quantize: Annotated[str | None, typer.Option(help="As if matrices of floats were brought to this type.")] = None,
    mtp: DraftHead = None,
    draft: Annotated[bool, typer.Option(help="Count what the draft head takes.")] = True,
    threads: Annotated[int | None, typer.Option(help=sentence("Threads that read", "the cores we may use"))] = None,
    measure: Annotated[bool, typer.Option(help="Measure the memory's bandwidth.")] = True,
    identify: Annotated[bool, typer.Option(help="Read the whole file for the fingerprint of its bytes.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Describe a model: layers, types, bytes read a token, bytes held a token, and the speed that memory allows."""
    from engine.loading.load_runner import choose_kv_type, choose_threads
    from engine.loading.model_card import read_model_card
    from engine.machine import measure_bandwidth
    from engine.weights.catalogue import resolve_model
    from engine.weights.draft_head import open_drafting, open_trunk
    from engine.weights.quantized_file import quantized

    resolved = resolve_model(model)
    opened = open_drafting(resolved.path, mtp) if draft else open_trunk(resolved.path)
    with quantized(opened, quantize) as file:
        card = read_model_card(file, resolved.id, choose_kv_type(kv_type))
        identity = _fingerprint(file, kv_type, choose_threads(threads)) if identify else None
    bandwidth = measure_bandwidth(choose_threads(threads)) if measure else None
    if as_json:
        typer.echo(json.dumps({**_as_json(card, bandwidth), "fingerprint": identity}, indent=2))
    else:
        Console(markup=False, highlight=False).print(_facts(card, identity), _speeds(card, bandwidth), sep="\n")


def _fingerprint(file: "WeightsFile", kv_type: str, threads: int) -> str:
    """What `serve` has for system_fingerprint, with a bar for the time that reading takes."""
    from engine.families.registry import read_blueprint
    from engine.loading.fingerprint import content_digest, fingerprint, numerics
    from engine.weights.digest import tensor_digests
    from engine.weights.draft_head import without_draft

    weights = without_draft(read_blueprint(file).file)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the weights", total=1.0)
        digests = tensor_digests(weights, threads, lambda done: bar.update(task, completed=done))
    return fingerprint(content_digest(weights, digests), numerics(EngineConfig().activations, kv_type))


def _as_json(card: "ModelCard", bandwidth: float | None) -> dict[str, object]:
    batches = [
        {
            "batch": batch,
            "bytes_per_step": round(card.weights.of_step(batch)),
            "bytes_per_token": round(card.weights.of_step(batch) / batch),
            "tokens_per_second": None if bandwidth is None else round(_speed(card, batch, bandwidth), 2),
        }
        for batch in BATCHES
    ]
    facts = {key: value for key, value in asdict(card).items() if key != "weights"}
    return {**facts, "bandwidth": bandwidth, "batches": batches}


def _speed(card: "ModelCard", batch: int, bandwidth: float) -> float:
    """Tokens a second of all sequences, where reading weights takes all the time."""
    return batch * bandwidth / max(card.weights.of_step(batch), 1)


def _facts(card: "ModelCard", identity: str | None) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    total = max(1, sum(card.types.values()))
    drafts = f", and {card.draft_layers} that drafts" if card.draft_layers else ""
    rows = {
        "model": f"{card.name}, {_parameters(card.parameters)}, {decimal(card.file_bytes)}",
        "family": card.family,
        "layers": f"{card.layers}{drafts}",
        "draft head": f"{decimal(card.draft_bytes)} a guess, beside the head" if card.draft_layers else "",
        "experts": f"{card.active_experts} of {card.experts} a layer" if card.experts else "",
        "vocabulary": f"{card.vocabulary}",
        "context": f"{card.context_length} tokens",
        "types": ", ".join(f"{name} {100 * size / total:.1f}%" for name, size in card.types.items()),
        **{f"keys, values {index + 1}": _kv_row(card, index) for index in range(len(card.kv))},
        "state": f"{decimal(card.state_bytes)} a sequence" if card.state_bytes else "",
        "fingerprint": identity or "",
        **{f"warning {index + 1}": warning for index, warning in enumerate(card.warnings)},
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    return table


def _parameters(count: int) -> str:
    return f"{count / 1e9:.2f} G parameters" if count >= 1e9 else f"{count / 1e6:.1f} M parameters"


def _kv_row(card: "ModelCard", index: int) -> str:
    group = card.kv[index]
    reach = f"of the last {group.window} tokens" if group.window else "of all tokens"
    return f"{decimal(group.bytes_per_token)} a token in {group.layers} layers, {reach}"


def _speeds(card: "ModelCard", bandwidth: float | None) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("BATCH", "BYTES A STEP", "BYTES A TOKEN", "TOK/S THAT MEMORY ALLOWS"):
        table.add_column(heading, justify="right")
    for batch in BATCHES:
        step = card.weights.of_step(batch)
        allowed = "" if bandwidth is None else f"{_speed(card, batch, bandwidth):,.1f}"
        table.add_row(str(batch), decimal(round(step)), decimal(round(step / batch)), allowed)
    if bandwidth is not None:
        table.caption, table.caption_justify = f"at {bandwidth / 1e9:.1f} GB/s, as measured here", "left"
    return table
