"""A load that begins before anybody waits for it."""

import threading

import pytest

from server.cli.early_load import EarlyLoad
from server.serving import Progress
from tests.server.scripted_engine import LoadFailure, ScriptedModel, scripted_model


def test_it_runs_before_it_is_called_and_tells_the_caller_of_later_stages() -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    model = scripted_model("x")

    def load(progress: Progress) -> ScriptedModel:
        progress("unheard", 0.0)
        has_begun.set()
        may_end.wait(20)
        progress("heard", 0.5)
        return model

    early = EarlyLoad(load)
    assert has_begun.wait(20)
    heard: list[tuple[str, float]] = []

    def note(stage: str, fraction: float) -> None:
        heard.append((stage, fraction))

    release = threading.Timer(0.2, may_end.set)
    release.start()
    assert early(note) is model
    assert heard == [("heard", 0.5)]


def test_what_ended_it_is_raised_where_it_is_waited_for() -> None:
    def load(progress: Progress) -> ScriptedModel:
        raise LoadFailure("The file is broken; get another.")

    early = EarlyLoad(load)
    with pytest.raises(LoadFailure, match="broken"):
        early(lambda stage, fraction: None)
