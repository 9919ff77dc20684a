"""Every public failure of the list has a test that names it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NUMBERS = (
    *(1, 3, 7, 8, 9, 11, 12, 14, 16, 17, 18, 19, 22, 24, 26, 28, 29, 30, 32, 33, 36, 37, 39, 43, 46, 48, 50, 51, 53),
    *(55, 56, 60, 61, 63, 67, 68, 70, 71, 73, 76, 77, 80, 82),
)
CASES = [f"BB-{number:03}" for number in NUMBERS]


def test_there_are_forty_three() -> None:
    assert len(set(CASES)) == len(CASES) == 43


@pytest.mark.parametrize("case", CASES)
def test_the_case_is_named_by_a_test_of_its_area(case: str) -> None:
    named = re.compile(rf'"""(?:[^"]|"(?!""))*{case}')
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    assert any(named.search(path.read_text()) for path in files)
