"""Options that several commands share, worded as the settings of `octavo serve` are."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from server.settings import Setting, all_settings


def sentence(text: str, unset: str | None = None) -> str:
    """The help of an option: a text, and what holds where the option is not given, in brackets."""
    return f"{text}." if unset is None else f"{text}{escape(f' [{unset}]')}."  # rich takes bare brackets for markup


def help_of(setting: Setting) -> str:
    """The help of a setting that is an option."""
    flag, default = setting.flag, setting.default
    assert flag.help is not None
    if flag.unset is None and default not in (None, (), {}) and not isinstance(default, bool):
        return sentence(flag.help, f"{default:g}" if isinstance(default, float) else str(default))
    return sentence(flag.help, flag.unset)


_SETTINGS = {setting.name: setting for setting in all_settings()}

ModelArgument = typer.Argument(help=f"{_SETTINGS['model'].flag.help}.")
DEFAULT_KV_TYPE: str = _SETTINGS["kv_type"].default
Model = Annotated[str | None, ModelArgument]
Threads = Annotated[int | None, typer.Option(help=help_of(_SETTINGS["threads"]))]
Isa = Annotated[str | None, typer.Option(help=help_of(_SETTINGS["isa"]))]
KvType = Annotated[str, typer.Option(help=f"{_SETTINGS['kv_type'].flag.help}.")]
Quantize = Annotated[str | None, typer.Option(help=help_of(_SETTINGS["quantize"]))]
DraftHead = Annotated[Path | None, typer.Option(help=help_of(_SETTINGS["mtp"]))]
