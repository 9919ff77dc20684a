"""The server's settings: flags > environment (OCTAVO_*) > defaults; read once, checked, frozen.

Sizes of memory as people write them: 4GiB, 512MiB, or a share, 30%.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.errors import OctavoError
from server.wire.limits import DEFAULT_MAX_BODY_BYTES

SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([a-z]*|%)", re.IGNORECASE | re.ASCII)
PREFIXES = "kmgt"


def bytes_of(text: str, whole: int) -> int:
    """The bytes of a size; a percentage is of `whole`. Raises ValueError for what is no size, or is none at all."""
    match = SIZE.fullmatch(text.strip())
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
    prefix, rest = PREFIXES.find(unit[0]) + 1, unit[1:]
    base = {"": 1024, "ib": 1024, "b": 1000}.get(rest)
    return None if base is None or not prefix else float(base**prefix)


ENV_PREFIX = "OCTAVO_"
SECRETS = frozenset({"api_key", "api_keys"})


class SettingsError(OctavoError):
    """A setting has a value that cannot be used."""


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _json(value: object) -> object:
    return orjson.loads(value) if isinstance(value, str | bytes) else value


def _key_that_a_header_can_carry(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not text.isprintable() or any(character.isspace() for character in text) or not text:
        raise ValueError("must be printable, without spaces, and not empty")
    return key


def _checked_size(size: str) -> str:
    bytes_of(size, 0)
    return size


MemorySize = Annotated[str, AfterValidator(_checked_size)]
Strings = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)]
Key = Annotated[SecretStr, AfterValidator(_key_that_a_header_can_carry)]
Keys = Annotated[tuple[Key, ...], NoDecode, BeforeValidator(_comma_separated)]
JsonObject = Annotated[dict[str, Any], NoDecode, BeforeValidator(_json)]


class Settings(BaseSettings):
    """Everything that `octavo serve` can be told."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True)

    model: str | None = None
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8080, ge=0, le=65535)  # 0: any free port
    lanes: int = Field(8, ge=1, le=256)
    ctx: int | None = Field(None, ge=2, le=2**31 - 1)  # tokens; None: as much as the model and memory allow
    threads: int | None = Field(None, ge=1, le=1024)  # None: the cores that we may use
    isa: str | None = None  # None: the best tier of this processor
    kv_type: Literal["f16", "f32", "q8_0"] = "f16"  # of attention keys and values
    quantize: str | None = None  # type that matrices of floats are brought to; None: as they are
    kv_memory: MemorySize | None = None  # for them; None: half of what is free, and no more than the lanes can use
    itl_target_ms: float | None = Field(None, gt=0, le=60_000, allow_inf_nan=False)  # between tokens; None: as measured
    speculation: Literal["auto", "ngram", "mtp", "off"] = "auto"  # how next tokens are guessed
    mtp: Path | None = None  # file of the draft head; None: the model's own, or one that lies beside it
    draft_max: int = Field(7, ge=1, le=15)  # guessed tokens of an answer in a step
    cache_dir: Path | None = None  # where the prefix cache survives a restart; None: it does not
    alias: Strings = ()
    any_model: bool = False
    strict_params: bool = False
    max_queue: int = Field(256, ge=0, le=1_000_000)  # requests that may wait
    priorities_across_callers: bool = False  # may a caller's priority count against other callers' requests?
    drain_timeout: float = Field(30.0, ge=0, le=86400, allow_inf_nan=False)  # seconds
    ping_seconds: float = Field(10.0, ge=0, le=3600, allow_inf_nan=False)  # 0: no keep-alive comments
    send_timeout: float = Field(60.0, gt=0, le=86400, allow_inf_nan=False)  # seconds that a reader may stall
    body_timeout: float = Field(30.0, gt=0, le=86400, allow_inf_nan=False)  # seconds that a body may stall
    max_body_bytes: int = Field(DEFAULT_MAX_BODY_BYTES, ge=1024, le=2**40)
    max_n: int = Field(16, ge=1, le=256)  # answers to one prompt
    chat_template: Path | None = None  # a jinja file; None: the model's own
    default_chat_template_kwargs: JsonObject = Field(default_factory=dict)  # of chats that do not say otherwise
    reasoning_field: Literal["both", "reasoning_content", "reasoning", "none"] = "both"
    api_key: Keys = ()
    api_keys: Keys = ()  # a second name, for the environment
    api_key_file: Path | None = None
    insecure_no_key: bool = False  # may the network reach a server without a key?
    allowed_host: Strings = ()  # further names that requests may call this server by
    cors_origin: Strings = ()  # further web pages that may call this server; * is any
    metrics: bool = True

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> Self:
        """Settings of the flags that were given (not None), then the environment; raises SettingsError."""
        given = {name: value for name, value in flags.items() if value not in (None, [], ())}
        try:
            return cls(**given)
        except ValidationError as error:
            raise _settings_error(error, given) from None

    def shown(self) -> str:
        """Every setting as it stands, as JSON, secrets blotted out."""
        return self.model_dump_json(indent=2)


def _settings_error(error: ValidationError, flags: Mapping[str, Any]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    key = f"--{name.replace('_', '-')}" if name in flags else f"{ENV_PREFIX}{name.upper()}"
    reason = first["msg"].removeprefix("Input ").removeprefix("Value error, ").rstrip(".")
    if name in SECRETS:
        return SettingsError(f"A value of the setting {key} cannot be used: it {reason}.")
    return SettingsError(f"The setting {key} cannot be {first['input']!r}: it {reason}.")
