"""A bad setting is named when the engine is made."""

import pytest

from engine.config import EngineConfig


@pytest.mark.parametrize("key", ["lanes", "prefill_rows_alone", "prefill_rows_shared"])
def test_a_setting_below_one_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} must be at least 1, not 0"):
        EngineConfig(**{key: 0})


def test_no_queue_at_all_is_allowed_but_a_negative_one_is_not() -> None:
    assert EngineConfig(max_waiting=0).max_waiting == 0
    with pytest.raises(ValueError, match="max_waiting must be at least 0, not -1"):
        EngineConfig(max_waiting=-1)
