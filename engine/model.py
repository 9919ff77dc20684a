"""A model ready to serve: its file, tokenizer, template, runner and the door to its engine."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.api.config import DRAFTING, EngineConfig
from engine.api.sampling import Sampling
from engine.errors import ModelFileError
from engine.families.registry import family_of
from engine.loading.fingerprint import identify
from engine.loading.load_runner import load_runner
from engine.machine import measure_bandwidth
from engine.run.embedding import pooling_of
from engine.service import EngineService
from engine.text.chat_template import ChatTemplate, given_template
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.formats.answer_format import AnswerFormat, answer_format
from engine.text.tokenizer import Tokenizer
from engine.weights.catalogue import resolve_model
from engine.weights.draft_head import open_drafting, open_trunk
from engine.weights.files.weights_file import WeightBytes, WeightsFile
from engine.weights.sampling_keys import sampling_defaults

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What the server holds; read-only."""

    id: str
    aliases: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    format: AnswerFormat
    constraints: ConstraintCompiler
    context_length: int
    vocab_size: int
    embedding_size: int
    architecture: str
    weight_types: str
    file_bytes: int
    fingerprint: str
    service: EngineService
    threads: int
    isa: str
    lanes: int
    kv_bytes: int  # that keys and values may take
    weights: WeightBytes
    weight_memory: Sequence[NDArray[np.uint8]]
    sampling: Sampling
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def bytes_per_token(self) -> int:
        """Weights that a decode step of one sequence reads."""
        return round(self.weights.of_step(1))

    def measure_bandwidth(self) -> float:
        """Bytes a second at which its threads read memory, that of its weights where they are large enough."""
        return measure_bandwidth(self.threads, memory=self.weight_memory)


def load_model(argument: str | None, options: EngineConfig, progress: Progress) -> ServedModel:
    """Find, load and warm up a model; blocking. `progress` gets the stage's name and the share that is done."""
    progress("Finding the model", 0.0)
    given = None if options.chat_template is None else given_template(options.chat_template)
    resolved = resolve_model(argument)
    file = _open(resolved.path, options)
    family_of(file)  # refuses an architecture before anything else takes time
    with ThreadPoolExecutor(1, "octavo-text") as beside:
        text = beside.submit(_load_text, file, given)
        loaded = load_runner(file, options, progress)
    tokenizer, template, answers, constraints = text.result()
    if tokenizer.vocab_size > loaded.runner.vocab_size:
        raise ModelFileError(
            f"{resolved.path} is broken: it has {tokenizer.vocab_size} tokens but only"
            f" {loaded.runner.vocab_size} embeddings."
        )
    identity = identify(loaded.file, loaded.digests, options, given)
    if resolved.content not in (None, identity.content) and options.quantize is None:
        loaded.runner.close()
        raise ModelFileError(f"{resolved.path} is not the {resolved.id} that was fetched; remove it to fetch it again.")
    config = replace(options, cache_identity=identity.cache)
    service = EngineService(loaded.runner, tokenizer, config, pooling_of(file))
    return ServedModel(
        id=resolved.id,
        aliases=options.aliases,
        tokenizer=tokenizer,
        template=template,
        format=answers,
        constraints=constraints,
        context_length=service.context_length,
        vocab_size=loaded.runner.vocab_size,
        embedding_size=loaded.runner.width,
        architecture=file.architecture,
        weight_types=describe_types(file),
        file_bytes=file.nbytes,
        fingerprint=identity.fingerprint,
        service=service,
        threads=loaded.runner.threads,
        isa=loaded.isa,
        lanes=options.lanes,
        kv_bytes=sum(group.n_blocks * group.block_bytes for group in loaded.runner.groups),
        weights=loaded.weights,
        weight_memory=loaded.weight_memory,
        sampling=sampling_defaults(file),
    )


def _open(path: Path, options: EngineConfig) -> WeightsFile:
    """The model, as the options want its matrices, and its draft head only where it is used."""
    file = open_drafting(path, options.mtp) if options.speculation in DRAFTING else open_trunk(path)
    if options.quantize is None:
        return file
    # Imported late: few models are quantized as they are loaded.
    from engine.weights.quantized_file import quantized

    return quantized(file, options.quantize)


def describe_types(file: WeightsFile) -> str:
    """Return the weight types by their share of the bytes: "Q4_1 69%, Q8_0 31%"."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        sizes[info.type] += info.nbytes
    total = max(1, sum(sizes.values()))
    shares = [(name, round(100 * size / total)) for name, size in sizes.most_common()]
    return ", ".join(f"{name} {share}%" for name, share in shares if share > 0)


def _load_text(
    file: WeightsFile, given: str | None
) -> tuple[Tokenizer, ChatTemplate | None, AnswerFormat, ConstraintCompiler]:
    """Build the tokenizer, the chat template (the one given, else the file's own, if any), and what reads answers."""
    tokenizer = Tokenizer.from_metadata(file.metadata)
    source = file.metadata.get("tokenizer.chat_template") if given is None else given
    template = _template(source, tokenizer) if isinstance(source, str) else None
    answers = answer_format(None if template is None else template.source, tokenizer)
    return tokenizer, template, answers, ConstraintCompiler(tokenizer, answers.marks)


def _template(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(
        source,
        bos_token=_token_text(tokenizer, tokenizer.bos_id),
        eos_token=_token_text(tokenizer, tokenizer.eos_id),
        control_tokens=tokenizer.control_tokens,
        user_tokens=tokenizer.user_tokens,
    )


def _token_text(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.token_text(token)
