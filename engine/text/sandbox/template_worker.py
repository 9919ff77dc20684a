"""The program that renders chat templates, in a process of its own: one JSON request a line in, one reply a line out.

A template comes with a model, from strangers: it may loop for ever or ask for any amount of memory, and a single step
of it can do so. Here it meets a sandbox and the operating system's limits; if it breaks the process, the server starts
another. Only the standard library and jinja2 are imported, since the file is run by its path.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
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


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters |= {"tojson": _tojson, "from_json": json.loads, "fromjson": json.loads}
    return environment


_ENVIRONMENT = _environment()


class _Names:
    """Names that are read before the template itself sets them, in the order of its text."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def visit_all(self, tree: Iterable[nodes.Node], known: set[str]) -> None:
        for node in tree:
            self.visit(node, known)

    def visit(self, node: nodes.Node, known: set[str]) -> None:
        """Follow one node; `known` are the names set so far in its scope, and what it sets is added."""
        if isinstance(node, nodes.Name):
            self._name(node, known)
        elif isinstance(node, nodes.Assign):
            self.visit(node.node, known)
            self.visit(node.target, known)
        elif isinstance(node, nodes.If):
            self._branches(node, known)
        elif isinstance(node, nodes.For):
            self._loop(node, known)
        elif isinstance(node, nodes.Macro):
            known.add(node.name)
            self.visit_all(node.iter_child_nodes(), {*known, *(each.name for each in node.args), "caller"})
        elif isinstance(node, nodes.AssignBlock | nodes.CallBlock | nodes.FilterBlock | nodes.Scope):
            self.visit_all(node.iter_child_nodes(exclude=("target",)), set(known))
            if isinstance(node, nodes.AssignBlock):
                self.visit(node.target, known)
        else:
            self.visit_all(node.iter_child_nodes(), known)

    def _name(self, node: nodes.Name, known: set[str]) -> None:
        if node.ctx != "load":
            known.add(node.name)
        elif node.name not in known:
            self.read.add(node.name)

    def _branches(self, node: nodes.If, known: set[str]) -> None:
        """Only what every branch sets is set afterwards."""
        self.visit(node.test, known)
        ends = []
        bodies: list[Iterable[nodes.Node]] = [node.body, *([each] for each in node.elif_), node.else_]
        for body in bodies:
            scope = set(known)
            self.visit_all(body, scope)
            ends.append(scope)
        known |= set.intersection(*ends)

    def _loop(self, node: nodes.For, known: set[str]) -> None:
        self.visit(node.iter, known)
        scope = {*known, "loop"}
        self.visit(node.target, scope)
        if node.test is not None:
            self.visit(node.test, scope)
        self.visit_all(node.body, scope)
        self.visit_all(node.else_, set(known))


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


def _variables(source: str) -> str:
    """The names that the template takes from its caller, as JSON; it is only parsed."""
    found = _Names()
    found.visit_all(_ENVIRONMENT.parse(source).body, set())
    return json.dumps(sorted(found.read - set(_ENVIRONMENT.globals)))


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
    source = request["source"]
    work = (lambda: _variables(source)) if request["names"] else (lambda: _render(source, request["variables"]))
    try:
        return "text", _limited(work)
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
