"""An error at any moment in the life of a sequence leaks nothing, and touches no other sequence."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.memory import prefix_cache
from engine.memory.blocks import BlockPool, EvictionQueue
from engine.memory.memory import Memory
from engine.run.nodes import Node
from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from tests.engine.memory.bench import MemoryBench
from tests.engine.scripted import ScriptedRunner

PROMPT = tuple(range(1, 14))  # three full blocks and one token


def failing(act: Callable[..., Any], after: int) -> Callable[..., Any]:
    """The same act, whose call number `after` fails for want of memory."""
    calls = 0

    def counted(*args: Any, **others: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise MemoryError
        return act(*args, **others)

    return counted


BREAKABLE = [
    (ScriptedRunner, "copy_state"),
    (BlockPool, "take"),
    (BlockPool, "share"),
    (BlockPool, "keep"),
    (prefix_cache.PrefixCache, "hit"),
    (prefix_cache.PrefixCache, "root"),
    (Node, "__init__"),
    (Memory, "_join"),
]


def fault_in(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int) -> bool:
    """Whether the act fails at that call, in the life of a sequence that finds something and evicts something."""
    bench = MemoryBench(windows=(0, 6), state_slots=5, n_blocks=12)
    bench.answer((*PROMPT, 3))
    other = bench.generate(bench.start(PROMPT), 1)
    request = Request(id="r", prompt=Prompt((*PROMPT, *PROMPT, *PROMPT)))
    sequence = TokenSequence(request, 4, TokenChooser(request))
    failed = False
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing(getattr(owner, name), after))
        try:
            bench.resume(sequence)
            bench.generate(sequence, 1, rows=7)
        except MemoryError:
            failed = True
        bench.memory.forget(sequence)
    bench.running = [other]
    bench.check()
    bench.generate(other, 6)
    bench.end(other)
    assert bench.memory.free_blocks == bench.memory.blocks
    return failed


@pytest.mark.parametrize(("owner", "name"), BREAKABLE)
def test_a_fault_at_any_moment_leaks_nothing(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [fault_in(monkeypatch, owner, name, after) for after in range(1, 30)]
    assert faults[0] and not faults[-1]
    assert faults == sorted(faults, reverse=True)


def test_what_cannot_be_queued_for_eviction_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(fault_in(monkeypatch, EvictionQueue, "add", after) for after in range(1, 30))
