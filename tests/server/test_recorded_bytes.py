"""The server's answers are, byte for byte, those that tests/server/recorded/ holds.

A refactoring leaves the files as they are. A change of the API rewrites them, and their diff shows what it changed:

    python -m tests.server.test_recorded_bytes

A file has a section a case: lines with `>` are the request, lines with `<` the status and headers of the answer, and
lines with `|` its body. Ids are numbered, and times are masked; all else is exact.
"""

import asyncio
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.server.recorded_cases.all_cases import CASES
from tests.server.recorded_cases.exchange import Case, told

FOLDER = Path(__file__).parent / "recorded"
HEADING = re.compile(r"(?m)^=== (.*)\n")


@cache
def recorded(api: str) -> dict[str, str]:
    """The text of each case of a file."""
    path = FOLDER / f"{api}.txt"
    _, *pieces = HEADING.split(path.read_bytes().decode()) if path.exists() else [""]
    return {name: text.removesuffix("\n") for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_the_bytes_are_those_that_were_recorded(case: Case) -> None:
    assert await told(case) == recorded(case.api)[case.name]


def test_the_files_hold_these_cases_and_no_others() -> None:
    held = [(path.stem, name) for path in FOLDER.iterdir() for name in recorded(path.stem)]
    assert sorted(held) == sorted((case.api, case.name) for case in CASES)


async def record() -> None:
    """Write down what the server says now."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for case in CASES:
        texts[case.api].append(f"=== {case.name}\n{await told(case)}\n")
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for api, sections in texts.items():
        (FOLDER / f"{api}.txt").write_bytes("".join(sections).encode())


if __name__ == "__main__":
    asyncio.run(record())
