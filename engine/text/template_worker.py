"""The program that renders chat templates, in a process of its own: one JSON request a line in, one reply a line out.

A template comes with a model, from strangers: it may loop for ever or ask for any amount of memory, and a single step
of it can do so. Here it meets a sandbox and the operating system's limits; if it breaks the process, the server starts
another. Only the standard library and jinja2 are imported, since the file is run by its path.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

PROCESSOR_SECONDS = 1.0
GRACE_SECONDS = 2  # then the kernel ends the process: one step of the template took all the time
MEMORY_BYTES = 1 << 29
LONGEST_OUTPUT = 1 << 24  # characters
LONGEST_COMPLAINT = 300  # characters


class _RefusedError(Exception):
    """The template's own raise_exception."""


class _TooSlowError(BaseException):
    """The processor time is over; no handler of jinja2's may catch it."""


class _TooLongError(Exception):
    """The template writes without end."""


class _Generation(Extension):
    """{% generation %} marks the model's own words for training; in serving it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object = "") -> NoReturn:
    raise _RefusedError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON without HTML escapes. Non-characters stay as they are: the server's guards must come back as they went."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return "".join(map(_ascii, text)) if ensure_ascii else text


def _ascii(character: str) -> str:
    code = ord(character)
    if code < 128 or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return character
    return json.dumps(character)[1:-1]


def template_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters |= {"tojson": _tojson, "from_json": json.loads, "fromjson": json.loads}
    return environment


_ENVIRONMENT = template_environment()


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)


def _render(source: str, variables: Mapping[str, Any] | None) -> str:
    """The rendered text; with no variables the template is only compiled."""
    template = _compiled(source)
    if variables is None:
        return ""
    pieces: list[str] = []
    size = 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        size += len(piece)
        if size > LONGEST_OUTPUT:
            raise _TooLongError
    return "".join(pieces)


def _limited(work: Callable[[], str]) -> str:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + PROCESSOR_SECONDS) + GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(request: Mapping[str, Any]) -> tuple[str, str]:
    """Kind of reply (text, refused, limit, failed) and its words."""
    try:
        return "text", _limited(lambda: _render(request["source"], request["variables"]))
    except _RefusedError as refusal:
        return "refused", str(refusal)
    except (_TooSlowError, _TooLongError, MemoryError):
        return "limit", "it takes too much time or memory"
    except RecursionError:
        return "failed", "it is nested too deeply"
    except TemplateError as error:
        return "failed", str(error.message or type(error).__name__)
    except Exception as error:  # whatever a template does wrong is the template's fault, and is told to the server
        return "failed", f"{type(error).__name__}: {error}"


def _out_of_time(signum: int, frame: object) -> NoReturn:
    raise _TooSlowError


def main() -> None:
    signal.signal(signal.SIGPROF, _out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        kind, words = _answer(json.loads(line))
        if kind in ("failed", "refused"):
            words = " ".join(words[:LONGEST_COMPLAINT].split())
        sys.stdout.buffer.write(json.dumps([kind, words]).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
