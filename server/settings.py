"""The server's settings: flags > environment (OCTAVO_*) > defaults; read once, checked, frozen.

Each setting is one field of Settings, EngineConfig or ServingOptions, with its default, bounds and help beside it. The
command line, the variables of the environment and the checks are made from the fields. This file is light, since every
command of the command line imports it: what checks values is imported when settings are read.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_type_hints

import orjson

from engine.api.config import EngineConfig, Flag
from engine.errors import OctavoError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings

ENV_PREFIX = "OCTAVO_"
SECRET = "**********"  # what is shown instead of one
ReasoningField = Literal["both", "reasoning_content", "reasoning", "none"]
Json = Mapping[str, object]


class SettingsError(OctavoError):
    """A setting has a value that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """What the HTTP face does where the operator has a choice."""

    any_model: Annotated[bool, Flag(help="Answer to any model name")] = False
    strict_params: Annotated[bool, Flag(help="Refuse parameters that would be ignored")] = False
    drain_seconds: Annotated[
        float, Flag(help="Seconds for running requests at stop", name="drain_timeout", ge=0, le=86400)
    ] = 30.0
    ping_seconds: Annotated[float, Flag(ge=0, le=3600)] = 10.0  # 0: no keep-alive comments
    # a reader that stalls this long is cut off
    send_timeout_seconds: Annotated[float, Flag(name="send_timeout", gt=0, le=86400)] = 60.0
    # a body that stalls this long, or brings next to nothing in it, is waited for no more
    body_seconds: Annotated[float, Flag(name="body_timeout", gt=0, le=86400)] = 30.0
    max_body_bytes: Annotated[int, Flag(ge=1024, le=2**40)] = 16 * 1024 * 1024
    max_n: Annotated[int, Flag(help="Answers to one prompt that a request may ask for", ge=1, le=256)] = 16
    # of chats that do not say otherwise
    default_template_kwargs: Annotated[
        Json,
        Flag(
            help="""JSON object of arguments to the chat template, as {"enable_thinking": false}""",
            name="default_chat_template_kwargs",
        ),
    ] = field(default_factory=dict)
    reasoning_field: Annotated[
        ReasoningField, Flag(help="Where thinking is told: both, reasoning_content, reasoning or none")
    ] = "both"
    # further names that requests may call this server by
    allowed_hosts: Annotated[
        tuple[str, ...],
        Flag(help="Another name that requests may call this server by; repeatable", name="allowed_host"),
    ] = ()
    # web pages that may call this server, beside those of this machine
    cors_origins: Annotated[
        tuple[str, ...],
        Flag(help="A web page's origin that may call this server; repeatable, * is any", name="cors_origin"),
    ] = ()
    metrics: Annotated[bool, Flag(help="Serve GET /metrics", unset="on")] = True
    # filled by cli/run_server.py:
    host: str = "127.0.0.1"  # requests may call the server by this name
    api_keys: tuple[str, ...] = field(default=(), repr=False)  # none: whoever reaches the port may use it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that `octavo serve` can be told, in the order in which it is shown."""

    model: Annotated[str | None, Flag(help="Catalogue name, .gguf file or folder", unset="smollm2-135m")] = None
    host: Annotated[str, Flag(help="Address to listen on", min_length=1)] = "127.0.0.1"
    port: Annotated[int, Flag(help="Port to listen on; 0 takes a free one", ge=0, le=65535)] = 8080
    engine: EngineConfig = field(default_factory=EngineConfig)
    serving: ServingOptions = field(default_factory=ServingOptions)
    api_key: Annotated[
        tuple[str, ...],
        Flag(
            help="A key that opens the API; repeatable. OCTAVO_API_KEY keeps it out of the list of processes",
            is_secret=True,
        ),
    ] = field(default=(), repr=False)
    api_keys: Annotated[tuple[str, ...], Flag(is_secret=True)] = field(default=(), repr=False)  # of the environment
    api_key_file: Annotated[Path | None, Flag(help="A file of such keys, one a line, # for comments")] = None
    insecure_no_key: Annotated[bool, Flag(help="Listen beyond this machine without asking for a key")] = False

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> Self:
        """Settings of the flags that were given (not None), then the environment; raises SettingsError."""
        from pydantic import ValidationError

        given = {name: value for name, value in flags.items() if value not in (None, [], ())}
        try:
            values = dict(_reader()(**given))
        except ValidationError as error:
            raise _settings_error(error, given) from None
        return _filled(cls, values)  # type: ignore[no-any-return]

    def shown(self) -> str:
        """Every setting as it stands, as JSON, secrets blotted out."""
        values = {setting.name: setting.shown_in(self) for setting in all_settings()}
        return orjson.dumps(values, option=orjson.OPT_INDENT_2, default=str).decode()


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the command line and the environment know it."""

    name: str  # with underscores
    path: tuple[str, ...]  # the fields that lead to it from Settings
    kind: Any  # its type
    default: Any
    flag: Flag

    def shown_in(self, settings: Settings) -> object:
        """Its value in some settings, as JSON can have it."""
        value: Any = settings
        for name in self.path:
            value = getattr(value, name)
        return [SECRET for _ in value] if self.flag.is_secret else value


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the fields."""
    return tuple(_settings_in(Settings))


def _settings_in(owner: Any, path: tuple[str, ...] = ()) -> Iterator[Setting]:
    hints = get_type_hints(owner, include_extras=True)
    for one in dataclasses.fields(owner):
        hint, here = hints[one.name], (*path, one.name)
        if dataclasses.is_dataclass(hint):
            yield from _settings_in(hint, here)
        elif (flag := _flag_of(hint)) is not None:
            yield Setting(flag.name or one.name, here, hint.__origin__, _default(one), flag)


def _flag_of(hint: Any) -> Flag | None:
    return next((fact for fact in getattr(hint, "__metadata__", ()) if isinstance(fact, Flag)), None)


def _default(one: dataclasses.Field[Any]) -> Any:
    make = one.default_factory
    return one.default if make is dataclasses.MISSING else make()


def _filled(owner: Any, values: Mapping[str, Any]) -> Any:
    """An object of a class of settings, its nested objects too; values: by the names of the settings."""
    hints = get_type_hints(owner, include_extras=True)
    given: dict[str, Any] = {}
    for one in dataclasses.fields(owner):
        hint = hints[one.name]
        if dataclasses.is_dataclass(hint):
            given[one.name] = _filled(hint, values)
        elif (flag := _flag_of(hint)) is not None:
            given[one.name] = values[flag.name or one.name]
    return owner(**given)


@cache
def _reader() -> "type[BaseSettings]":
    """What reads the environment and checks all values: a model with one field for each setting."""
    from pydantic import create_model
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class Reader(BaseSettings):
        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True)

    fields = {setting.name: _checked(setting) for setting in all_settings()}
    return create_model("Reader", __base__=Reader, **fields)  # type: ignore[call-overload, no-any-return]


def _checked(setting: Setting) -> tuple[Any, Any]:
    """The type and the default of a setting, as pydantic takes them."""
    from pydantic import AfterValidator, BeforeValidator, Field
    from pydantic_settings import NoDecode

    flag, kind = setting.flag, setting.kind
    bounds = {name: getattr(flag, name) for name in ("ge", "gt", "le", "min_length") if getattr(flag, name) is not None}
    if flag.is_secret:
        kind = tuple[Annotated[str, AfterValidator(_key_that_a_header_can_carry)], ...]
    if flag.choices:
        kind = Literal[flag.choices]
    if flag.check is not None:
        kind = Annotated[str, AfterValidator(flag.check)] | None
    if kind == Json:
        kind = Annotated[dict[str, Any], NoDecode, BeforeValidator(_json)]
    if getattr(kind, "__origin__", None) is tuple:
        kind = Annotated[kind, NoDecode, BeforeValidator(_comma_separated)]
    if kind in (float, float | None):
        bounds["allow_inf_nan"] = False
    return kind, Field(setting.default, **bounds)


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _json(value: object) -> object:
    return orjson.loads(value) if isinstance(value, str | bytes) else value


def _key_that_a_header_can_carry(key: str) -> str:
    if not key.isprintable() or any(character.isspace() for character in key) or not key:
        raise ValueError("must be printable, without spaces, and not empty")
    return key


def _settings_error(error: "ValidationError", flags: Mapping[str, Any]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    key = f"--{name.replace('_', '-')}" if name in flags else f"{ENV_PREFIX}{name.upper()}"
    reason = first["msg"].removeprefix("Input ").removeprefix("Value error, ").rstrip(".")
    if any(setting.flag.is_secret for setting in all_settings() if setting.name == name):
        return SettingsError(f"A value of the setting {key} cannot be used: it {reason}.")
    return SettingsError(f"The setting {key} cannot be {first['input']!r}: it {reason}.")
