"""A model ready to serve: its file, tokenizer, template, runner and the door to its engine."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.constraints.compiler import ConstraintCompiler
from engine.errors import ModelFileError
from engine.families.loaded import RunnerOptions, check_family, load_runner
from engine.formats.answer_format import AnswerFormat, answer_format
from engine.pooling import pooling_of
from engine.service import EngineService
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.version import VERSION
from engine.weights.catalogue import resolve_model
from engine.weights.gguf import GgufFile

Progress = Callable[[str, float], None]
_SAMPLE_BYTES = 4096  # of each tensor, that the fingerprint looks at


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(RunnerOptions):
    """How to load and serve a model."""

    aliases: tuple[str, ...] = ()
    max_waiting: int = 256


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
    bytes_per_token: int
    created: int = field(default_factory=lambda: int(time.time()))


def load_model(argument: str | None, options: LoadOptions, progress: Progress) -> ServedModel:
    """Find, load and warm up a model; blocking. `progress` gets the stage's name and the share that is done."""
    progress("Finding the model", 0.0)
    resolved = resolve_model(argument)
    file = GgufFile.open(resolved.path)
    check_family(file)
    with ThreadPoolExecutor(1, "octavo-text") as beside:
        text = beside.submit(_load_text, file)
        loaded = load_runner(file, options, progress)
    tokenizer, template, answers, constraints = text.result()
    if tokenizer.vocab_size > loaded.runner.vocab_size:
        raise ModelFileError(
            f"{resolved.path} is broken: it has {tokenizer.vocab_size} tokens but only"
            f" {loaded.runner.vocab_size} embeddings."
        )
    config = EngineConfig(lanes=options.lanes, max_waiting=options.max_waiting)
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
        file_bytes=resolved.path.stat().st_size,
        fingerprint=fingerprint(file, f"{options.activations} {options.kv_type}"),
        service=service,
        threads=loaded.runner.threads,
        isa=loaded.isa,
        lanes=options.lanes,
        bytes_per_token=loaded.bytes_per_token,
    )


def describe_types(file: GgufFile) -> str:
    """Return the weight types by their share of the bytes: "Q4_1 69%, Q8_0 31%"."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        sizes[info.type] += info.nbytes
    total = max(1, sum(sizes.values()))
    shares = [(name, round(100 * size / total)) for name, size in sizes.most_common()]
    return ", ".join(f"{name} {share}%" for name, share in shares if share > 0)


def fingerprint(file: GgufFile, numerics: str) -> str:
    """Hash what decides a request's bits: the weights (by a sample of each tensor), how they are run, our version.

    Tier, threads and lanes are left out on purpose: they change no bit.
    """
    digest = hashlib.sha256(f"octavo {VERSION} {numerics} {file.architecture}".encode())
    for key, value in sorted(file.metadata.items()):
        if not isinstance(value, list):
            digest.update(f"{key}={value!r}".encode())
    for info in file.tensors.values():
        digest.update(f"{info.name} {info.shape} {info.type} {info.nbytes}".encode())
        digest.update(file.raw(info.name).reshape(-1)[:_SAMPLE_BYTES].tobytes())
    return f"fp_{digest.hexdigest()[:16]}"


def _load_text(file: GgufFile) -> tuple[Tokenizer, ChatTemplate | None, AnswerFormat, ConstraintCompiler]:
    """Build the tokenizer, the chat template where the file has one, and what reads and limits answers."""
    tokenizer = Tokenizer.from_metadata(file.metadata)
    source = file.metadata.get("tokenizer.chat_template")
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
