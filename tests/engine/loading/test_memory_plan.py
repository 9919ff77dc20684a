"""How memory is shared out among groups of layers, running sequences and the prefix cache."""

from dataclasses import dataclass

import pytest

from engine.errors import OctavoError
from engine.families.emit.attention_state import KvLayers
from engine.loading.memory_plan import MemoryNeeds, plan_memory

BLOCK = 2 * 64 * 64 * 2  # of keys and values of one layer


def group(layers: int, window: int = 0, stride: int = 1) -> KvLayers:
    half = layers * BLOCK // 2
    return KvLayers(layers=layers, window=window, stride=stride, key_bytes=half, value_bytes=half)


FULL, SLIDING = group(1), group(5, window=512)


@dataclass(frozen=True)
class Config:
    """A model as far as memory goes."""

    groups: tuple[KvLayers, ...] = (group(2),)
    state_bytes: int = 0


def needs(config: Config, lanes: int = 4) -> MemoryNeeds:
    return MemoryNeeds(groups=config.groups, state_bytes=config.state_bytes, context=6400, lanes=lanes, max_rows=512)


def used(config: Config, n_blocks: tuple[int, ...], slots: int = 0) -> int:
    sizes = [layers.block_bytes for layers in config.groups]
    return slots * config.state_bytes + sum(size * count for size, count in zip(sizes, n_blocks, strict=True))


def test_one_group_gets_all_but_no_more_than_lanes_can_use() -> None:
    config = Config()
    assert plan_memory(needs(config), 150 * 2 * BLOCK, fixed=False).n_blocks == (150,)
    assert plan_memory(needs(config), 10_000 * 2 * BLOCK, fixed=False).n_blocks == (4 * 100,)


def test_memory_that_somebody_asked_for_is_used_up() -> None:
    assert plan_memory(needs(Config()), 10_000 * 2 * BLOCK, fixed=True).n_blocks == (10_000,)


@pytest.mark.parametrize("order", [(FULL, SLIDING), (SLIDING, FULL)])
def test_a_window_gets_what_lanes_need_and_a_quarter_of_the_rest(order: tuple[KvLayers, ...]) -> None:
    config, lane = Config(order), 8 + 8 + 2  # window, chunk, and blocks that these begin within
    budget = 4 * lane * 5 * BLOCK + BLOCK + 800 * BLOCK
    plan = dict(zip(order, plan_memory(needs(config), budget, fixed=True).n_blocks, strict=True))
    assert plan == {SLIDING: 4 * lane + 200 // 5, FULL: 1 + 600}


def test_a_window_never_gets_more_than_whole_contexts() -> None:
    config = Config((FULL, group(5, window=1 << 20)))
    assert plan_memory(needs(config), 1 << 40, fixed=False).n_blocks == (400, 400)


def test_states_are_those_of_lanes_and_some_snapshots() -> None:
    config = Config(state_bytes=3 * BLOCK)
    budget = 4 * 3 * BLOCK + 2 * BLOCK + 60 * BLOCK
    plan = plan_memory(needs(config), budget, fixed=True)
    assert plan.state_slots == 4 + 5  # a quarter of the rest holds five states
    assert plan.n_blocks == (1 + 45 // 2,)
    assert plan_memory(needs(config), 1 << 40, fixed=False).state_slots == 4 + 16


@pytest.mark.parametrize("config", [Config(), Config((FULL, SLIDING)), Config((SLIDING,)), Config(state_bytes=999)])
@pytest.mark.parametrize("budget", [10**7, 10**8, 3 * 10**9])
def test_a_plan_stays_within_its_budget(config: Config, budget: int) -> None:
    plan = plan_memory(needs(config), budget, fixed=True)
    assert budget * 0.95 < used(config, plan.n_blocks, plan.state_slots) <= budget


def test_what_lanes_need_at_least_is_told() -> None:
    config = Config((FULL, SLIDING))
    smallest = used(config, (1, 4 * 18))
    assert plan_memory(needs(config), smallest, fixed=True).n_blocks == (1, 72)
    with pytest.raises(
        OctavoError, match=f"{smallest - 1} bytes do not hold .* which take {smallest} bytes; give more"
    ):
        plan_memory(needs(config), smallest - 1, fixed=True)
    with pytest.raises(OctavoError, match="too little free memory"):
        plan_memory(needs(config), smallest - 1, fixed=False)


def test_a_block_of_compressed_entries_covers_more_positions() -> None:
    wanted = needs(Config((group(2, stride=4),)))
    plan = plan_memory(wanted, 1 << 40, fixed=False)
    assert plan.n_blocks == (4 * 25,)
    assert wanted.context_of(plan) == 6400
    assert wanted.context_of(plan_memory(wanted, 3 * 2 * BLOCK, fixed=True)) == 3 * 4 * 64


def test_layers_whose_values_are_their_keys_take_half() -> None:
    single = Config((KvLayers(layers=2, window=0, stride=1, key_bytes=BLOCK, value_bytes=0),))
    assert plan_memory(needs(single), 150 * BLOCK, fixed=False).n_blocks == (150,)
