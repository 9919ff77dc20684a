"""The one jinja2 environment: sandboxed, and with limits on everything a template can make.

A template comes with a model, from strangers. It may take a second of processor time (looked at in every turn of every
loop and in every call), and no single operation may make a value that is not small; all values together have a budget.
What could break these rules in one step (padding, lorem ipsum, formats of any width) is left out.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Joiner, Namespace

PROCESSOR_SECONDS = 1.0
BUDGET = 1 << 26  # characters and list entries, in all values that one rendering makes
LARGEST_NUMBER = 1 << 64
LONGEST_RANGE = 100_000
NONCHARACTERS = [*map(chr, range(0xFDD0, 0xFDF0)), *(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))]


class RefusedError(Exception):
    """The template's own raise_exception."""


class LimitError(Exception):
    """The template takes too long or makes too much."""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self._left = BUDGET
        self._deadline = time.thread_time() + PROCESSOR_SECONDS

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise LimitError("The chat template makes too much text")

    def tick(self) -> None:
        if time.thread_time() > self._deadline:
            raise LimitError("The chat template takes too long")


_budget: ContextVar[Budget] = ContextVar("_budget")
