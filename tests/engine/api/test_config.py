"""A bad setting is named when the engine is made."""

import math
from typing import Any, cast

import pytest

from engine.api.config import EngineConfig, bytes_of


@pytest.mark.parametrize("key", ["lanes", "prefill_rows", "prefill_interval", "knee_rows", "draft_max"])
def test_a_setting_below_one_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} must be at least 1, not 0"):
        EngineConfig(**cast(Any, {key: 0}))


def test_a_way_of_guessing_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="speculation must be one of auto, ngram, mtp, off, not 'eagle'"):
        EngineConfig(speculation="eagle")


def test_no_queue_at_all_is_allowed_but_a_negative_one_is_not() -> None:
    assert EngineConfig(max_waiting=0).max_waiting == 0
    with pytest.raises(ValueError, match="max_waiting must be at least 0, not -1"):
        EngineConfig(max_waiting=-1)


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan])
def test_a_target_has_to_be_a_time(target: float) -> None:
    assert EngineConfig(itl_target_ms=20).itl_target_seconds == 0.02
    with pytest.raises(ValueError, match="itl_target_ms must be above 0, not"):
        EngineConfig(itl_target_ms=target)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("1048576", 1 << 20),
        ("4GiB", 4 << 30),
        ("512 MiB", 512 << 20),
        ("1.5g", 3 << 29),
        ("2KB", 2000),
        ("8B", 8),
        ("1TiB", 1 << 40),
        ("30%", 300_000),
        ("100%", 1_000_000),
    ],
)
def test_memory_is_a_size_or_a_share(size: str, expected: int) -> None:
    assert bytes_of(size, 1_000_000) == expected


@pytest.mark.parametrize("size", ["", "GiB", "4 GiBs", "4i", "-1", "0", "0%", "101%", "1e9", "nan", "٣GiB", "9" * 30])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match="should be"):
        bytes_of(size, 1_000_000)
