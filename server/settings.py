"""The server's settings: flags > environment (OCTAVO_*) > defaults; read once, checked, frozen."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.errors import OctavoError
from server.limits import DEFAULT_MAX_BODY_BYTES

ENV_PREFIX = "OCTAVO_"


class SettingsError(OctavoError):
    """A setting has a value that cannot be used."""


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Aliases = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)]


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
    alias: Aliases = ()
    any_model: bool = False
    strict_params: bool = False
    max_queue: int = Field(256, ge=0, le=1_000_000)  # requests that may wait
    drain_timeout: float = Field(30.0, ge=0, le=86400, allow_inf_nan=False)  # seconds
    ping_seconds: float = Field(10.0, ge=0, le=3600, allow_inf_nan=False)  # 0: no keep-alive comments
    send_timeout: float = Field(60.0, gt=0, le=86400, allow_inf_nan=False)  # seconds that a reader may stall
    max_body_bytes: int = Field(DEFAULT_MAX_BODY_BYTES, ge=1024, le=2**40)

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> Self:
        """Settings of the flags that were given (not None), then the environment; raises SettingsError."""
        given = {name: value for name, value in flags.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise _settings_error(error, given) from None


def _settings_error(error: ValidationError, flags: Mapping[str, Any]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    key = f"--{name.replace('_', '-')}" if name in flags else f"{ENV_PREFIX}{name.upper()}"
    reason = first["msg"].removeprefix("Input ").rstrip(".")
    return SettingsError(f"The setting {key} cannot be {first['input']!r}: it {reason}.")
