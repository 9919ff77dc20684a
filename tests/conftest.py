"""What every test shares: no setting of the developer's own shell reaches the code under test."""

import os

import numba  # noqa: F401, before kernels/: tests compile in their own process
import pytest

KEPT = {"OCTAVO_CACHE"}  # compiled kernels live there; compiling them anew for each run would take minutes


@pytest.fixture(autouse=True)
def no_settings_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - KEPT:
        if name.startswith("OCTAVO_"):
            monkeypatch.delenv(name)
