"""Settings of the engine, frozen, each with what `octavo serve` says of it; a bad one fails at start, by its name.

Sizes of memory as people write them: 4GiB, 512MiB, or a share, 30%.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

SPECULATIONS = ("auto", "ngram", "mtp", "off")
DRAFTING = ("auto", "mtp")  # those that run the model's own draft head
KV_TYPES = ("f16", "f32", "q8_0")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([a-z]*|%)", re.IGNORECASE | re.ASCII)
_PREFIXES = "kmgt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What `octavo serve` and the environment say of the field that is annotated with it."""

    help: str | None = None  # without its full stop; None: the field is read from the environment alone
    unset: str | None = None  # what the default means, where it does not say so itself
    name: str | None = None  # of the flag, with underscores; None: the field's own
    ge: float | None = None  # at least this
    gt: float | None = None  # more than this
    le: float | None = None  # at most this
    min_length: int | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str], str] | None = None  # gives the value back, or raises ValueError
    is_secret: bool = False  # never shown


def checked_size(text: str) -> str:
    """The text of a size, as it is. Raises ValueError for what is no size, or is none at all."""
    bytes_of(text, 0)
    return text


def bytes_of(text: str, whole: int) -> int:
    """The bytes of a size; a percentage is of `whole`. Raises ValueError for what is no size, or is none at all."""
    match = _SIZE.fullmatch(text.strip())
    factor = None if match is None else _factor(match[2].lower(), whole)
    if match is None or factor is None:
        raise ValueError("should be a size such as 4GiB, 512MiB or 2000000000, or a share such as 30%")
    if float(match[1]) <= 0 or (match[2] == "%" and float(match[1]) > 100):
        raise ValueError("should be more than nothing, and a share no more than 100%")
    return int(float(match[1]) * factor)


def _factor(unit: str, whole: int) -> float | None:
    """Bytes in a unit: KiB and K are 1024 of them, KB is 1000; None where there is no such unit."""
    if unit in ("", "b", "%"):
        return whole / 100 if unit == "%" else 1
    prefix, rest = _PREFIXES.find(unit[0]) + 1, unit[1:]
    base = {"": 1024, "ib": 1024, "b": 1000}.get(rest)
    return None if base is None or not prefix else float(base**prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How a model is loaded and run, how much the engine takes on at once, and how it shares its time.

    None means: as the machine and the model's file allow. Handed on whole to everything that is made of it.
    """

    # how the model is run
    lanes: Annotated[int, Flag(help="Sequences decoded at once", ge=1, le=256)] = 8
    context_length: Annotated[
        int | None,
        Flag(help="Context in tokens", unset="as the model and memory allow", name="ctx", ge=2, le=2**31 - 1),
    ] = None
    threads: Annotated[int | None, Flag(help="Compute threads", unset="the cores we may use", ge=1, le=1024)] = None
    isa: Annotated[str | None, Flag(help="Instruction tier", unset="the best this processor has")] = None
    activations: str = "int8"  # how the inputs of matmuls are held
    kv_type: Annotated[str, Flag(help="Type of attention keys and values: f16, f32 or q8_0", choices=KV_TYPES)] = "f16"
    # of keys, values and recurrent states, as `bytes_of` reads it; None: half of what is free
    kv_memory: Annotated[
        str | None,
        Flag(
            help="Memory for keys and values, as 4GiB, or a share of what is free, as 30%",
            unset="half of it",
            check=checked_size,
        ),
    ] = None
    max_rows: int = 512  # of a step: enough for a chunk of a prompt; buffers grow with it
    max_logit_rows: int | None = None  # of a step; None: one a lane, and no fewer than load_runner.LOGIT_ROWS
    # how the time is shared
    itl_target_ms: Annotated[
        float | None,
        Flag(
            help="Milliseconds between tokens that long prompts must leave the others",
            unset="as measured",
            gt=0,
            le=60_000,
        ),
    ] = None
    prefill_rows: int = 512  # prompt tokens a step at most
    prefill_interval: int = 4  # steps in which a waiting prompt is granted a chunk, whatever the target leaves
    knee_rows: int = 16  # of a step, up to which reading the weights takes the time, not the rows
    # how next tokens are guessed
    speculation: Annotated[
        str,
        Flag(help="How next tokens are guessed: auto, ngram, mtp or off", choices=SPECULATIONS),
    ] = "auto"
    mtp: Annotated[
        Path | None, Flag(help="File of the model's draft head", unset="its own, or an mtp-*.gguf beside it")
    ] = None
    draft_max: Annotated[int, Flag(help="Guessed tokens of an answer in a step, at most", ge=1, le=15)] = 7
    # the prefix cache
    cache_dir: Annotated[
        Path | None, Flag(help="Folder in which the prefix cache survives a restart", unset="it does not")
    ] = None
    cache_identity: str = ""  # what the folder's content belongs to; known once the model is loaded
    # the model's file and its names
    quantize: Annotated[
        str | None, Flag(help="Bring matrices of floats to this type: q8_0, q4_k, ...", unset="as they are")
    ] = None
    aliases: Annotated[tuple[str, ...], Flag(help="Another name for the model; repeatable", name="alias")] = ()
    chat_template: Annotated[Path | None, Flag(help="Jinja file with the chat template", unset="the model's own")] = (
        None
    )
    # the queue
    max_waiting: Annotated[
        int, Flag(help="Requests that may wait before 429", name="max_queue", ge=0, le=1_000_000)
    ] = 256
    priorities_across_callers: Annotated[bool, Flag(help="Let a priority count against requests of other API keys")] = (
        False
    )

    def __post_init__(self) -> None:
        for key in ("lanes", "max_waiting", "prefill_rows", "prefill_interval", "knee_rows", "draft_max"):
            value, least = getattr(self, key), 0 if key == "max_waiting" else 1
            if value < least:
                raise ValueError(f"{key} must be at least {least}, not {value}.")
        if self.speculation not in SPECULATIONS:
            raise ValueError(f"speculation must be one of {', '.join(SPECULATIONS)}, not {self.speculation!r}.")
        if self.itl_target_ms is not None and not self.itl_target_ms > 0:
            raise ValueError(f"itl_target_ms must be above 0, not {self.itl_target_ms}.")

    @property
    def itl_target_seconds(self) -> float | None:
        """Of a step, beside long prompts; None: as measured, see ChunkBudget.target."""
        return None if self.itl_target_ms is None else self.itl_target_ms / 1e3
