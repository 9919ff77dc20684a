"""Runs the server: from settings to a model that answers, with what the terminal shows meanwhile.

In this order: whether the server may listen at its address at all, the socket, the signals, the load with its progress
(a bar on a terminal, lines elsewhere), the banner, and the exit.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from dataclasses import replace
from typing import NoReturn

import orjson
from rich.console import Console

from engine.errors import OctavoError
from server.app import create_app
from server.logs import configure_logging
from server.served import ServedModel
from server.serving import Load, Progress, Serving
from server.settings import ServingOptions, Settings
from server.wire.lifecycle import HttpServer, bind
from server.wire.security import read_key_file
from server.wire.sites import is_loopback

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listened on everywhere, reached here


def print_banner(
    console: Console, model: ServedModel, host: str, port: int, bytes_per_second: float, *, has_keys: bool
) -> None:
    url = base_url(host, port)
    for line in _facts(model, url, bytes_per_second):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"\n{_curl_line(model, url, has_keys)}\n", highlight=False, markup=False, soft_wrap=True)


def base_url(host: str, port: int) -> str:
    reachable = WILDCARDS.get(host, host)
    return f"http://[{reachable}]:{port}/v1" if ":" in reachable else f"http://{reachable}:{port}/v1"


def _facts(model: ServedModel, url: str, bytes_per_second: float) -> list[str]:
    names = ", ".join((model.id, *model.aliases))
    allowed = bytes_per_second / max(model.bytes_per_token, 1)
    return [
        f"Octavo is ready at {url}",
        f"  model      {names} ({model.architecture}, {model.file_bytes / 1e6:,.0f} MB)",
        f"  types      {model.weight_types}",
        f"  context    {model.context_length} tokens",
        f"  lanes      {model.lanes}",
        f"  memory     {model.kv_bytes / 1e6:,.0f} MB for keys and values",
        f"  threads    {model.threads}, instruction tier {model.isa}",
        *(["  tools      in words: the chat template has no place for tools"] if model.format.tools_in_words else []),
        f"  bandwidth  {bytes_per_second / 1e9:.1f} GB/s measured; it allows {allowed:,.0f} tok/s for one sequence",
    ]


def _curl_line(model: ServedModel, url: str, has_keys: bool) -> str:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = orjson.dumps({"model": model.id, "messages": messages, "temperature": 0}).decode()
    key = """ -H "Authorization: Bearer $OCTAVO_API_KEY\"""" if has_keys else ""
    return f"curl {url}/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"


class ExposureError(OctavoError):
    """The address is reachable from the network, and nothing asks for a key."""


def check_exposure(host: str, *, has_keys: bool, insecure: bool) -> str | None:
    """A warning to show; raises ExposureError where the server must not start."""
    if has_keys or is_loopback(host):
        return None
    if insecure:
        return (
            f"Warning: listening on {host}, and this server asks for no key:"
            " whoever reaches the port can use the model and see what others ask of it."
        )
    raise ExposureError(
        f"Listening on {host} without an API key would let whoever reaches the port use the model:"
        " set one with OCTAVO_API_KEY or --api-key, or say --insecure-no-key if that is meant."
    )


def shown(load: Load, console: Console) -> Load:
    """The same load, with its progress on the console too."""
    with_progress = _with_bar if console.is_terminal else _with_lines
    return lambda note: with_progress(load, console, note)


def _with_bar(load: Load, console: Console, note: Progress) -> ServedModel:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("Starting", total=1.0)

        def both(stage: str, fraction: float) -> None:
            note(stage, fraction)
            bars.update(bar, description=stage, completed=fraction)

        return load(both)


def _with_lines(load: Load, console: Console, note: Progress) -> ServedModel:
    last = ""

    def both(stage: str, fraction: float) -> None:
        nonlocal last
        note(stage, fraction)
        if stage != last:
            console.print(stage, highlight=False, markup=False, soft_wrap=True)
            last = stage

    return load(both)


def run_server(settings: Settings, load: Load | None = None) -> None:
    """Serve until a signal; raises OctavoError if the server cannot start. The load is the real engine's by default."""
    configure_logging()
    console = Console(stderr=True)
    options = serving_options(settings)
    warning = check_exposure(settings.host, has_keys=bool(options.api_keys), insecure=settings.insecure_no_key)
    with bind(settings.host, settings.port) as listener:
        if warning is not None:
            console.print(warning, style="yellow", highlight=False, soft_wrap=True)
        serving = Serving(shown(load or engine_load(settings), console), options)
        server = HttpServer(create_app(serving), serving)
        run = Run(settings, server, serving, listener, console)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            loaded = runner.run(run.until_stopped())
    if not loaded:
        # The load is still in compiled code, which must not meet an interpreter that is shutting down.
        _exit_now(0)


class Run:
    """A server between its first signal handler and its last byte."""

    def __init__(
        self,
        settings: Settings,
        server: HttpServer,
        serving: Serving,
        listener: socket.socket,
        console: Console,
    ) -> None:
        self._settings = settings
        self._server = server
        self._serving = serving
        self._listener = listener
        self._console = console

    async def until_stopped(self) -> bool:
        """Serve; returns whether the model was loaded before the end, raises what ended the load."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        loading = asyncio.create_task(self._serving.wait_loaded())
        await asyncio.wait({serving, loading}, return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            await serving
            return False
        if loading.exception() is None:
            await self._welcome(loading.result())
        else:
            self._server.request_exit()
        await serving
        loading.result()
        return True

    async def _welcome(self, model: ServedModel) -> None:
        # The collector is off since cli/serve.py. What is loaded now stays, and need not be looked at again.
        gc.freeze()
        gc.enable()
        port = self._listener.getsockname()[1]
        bytes_per_second = await asyncio.to_thread(model.measure_bandwidth)
        self._serving.memory_bandwidth = bytes_per_second
        has_keys = bool(self._serving.options.api_keys)
        print_banner(self._console, model, self._settings.host, port, bytes_per_second, has_keys=has_keys)
        await _build_validators()

    def _on_signal(self, number: int) -> None:
        if self._server.should_exit:
            _exit_now(128 + number)
        seconds = self._settings.serving.drain_seconds
        self._console.print(
            f"Stopping; running requests have {seconds:g} s to finish. Press Ctrl-C again to stop at once.",
            highlight=False,
            soft_wrap=True,
        )
        self._server.request_exit()


async def _build_validators() -> None:
    """Build those of all requests, one at a time, so that the first request does not wait for its own."""
    from server.routes import ENDPOINTS

    for row in ENDPOINTS:
        if row.body is not None:
            row.body.model_rebuild()
            await asyncio.sleep(0)


def _exit_now(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serving_options(settings: Settings) -> ServingOptions:
    """The settings of the HTTP face, with its address and all keys. Raises OctavoError for a bad file of keys."""
    keys = (*settings.api_key, *settings.api_keys)
    from_file = read_key_file(settings.api_key_file) if settings.api_key_file else ()
    return replace(settings.serving, host=settings.host, api_keys=(*keys, *from_file))


def engine_load(settings: Settings) -> Load:
    """How the real engine is loaded."""

    def load(progress: Progress) -> ServedModel:
        # Imported late: the compiler behind it is heavy, and /health answers meanwhile.
        from engine.model import load_model

        return load_model(settings.model, settings.engine, progress)

    return load
