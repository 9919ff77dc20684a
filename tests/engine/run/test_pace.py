"""What the pace learns from steps whose cost is known."""

import random

import pytest

from engine.run.pace import Chunk, Pace


def cost(lanes: int, chunks: tuple[Chunk, ...]) -> float:
    """Seconds: 5 ms and 1 ms a lane; 8 ms, 1 ms a row and 0.5 us a row and position for prompts."""
    rows = sum(chunk.rows for chunk in chunks)
    positions = sum(chunk.positions for chunk in chunks)
    return (5e-3 + 1e-3 * lanes if lanes else 0) + (8e-3 + 1e-3 * rows + 0.5e-6 * positions if chunks else 0)


def taught(rng: random.Random, *, noise: float = 0.0, outliers: float = 0.0) -> Pace:
    pace = Pace()
    for lanes in (1, 4, 7):
        for _ in range(15):
            pace.note(lanes, (), cost(lanes, ()) * (1 + rng.uniform(-noise, noise)))
    for _ in range(200):
        lanes = rng.choice([0, 1, 4, 7])
        chunks = tuple(
            Chunk(rng.randrange(4000), rng.choice([16, 40, 100, 250, 500])) for _ in range(rng.randint(1, 2))
        )
        factor = rng.uniform(3, 10) if rng.random() < outliers else 1 + rng.uniform(-noise, noise)
        pace.note(lanes, chunks, cost(lanes, chunks) * factor)
    return pace


@pytest.mark.parametrize(("noise", "outliers", "error"), [(0.0, 0.0, 0.02), (0.1, 0.0, 0.1), (0.05, 0.1, 0.15)])
def test_costs_are_learned_through_noise_and_outliers(noise: float, outliers: float, error: float) -> None:
    pace = taught(random.Random(1), noise=noise, outliers=outliers)
    for lanes in (1, 4, 7):
        assert pace.decode_seconds(lanes) == pytest.approx(cost(lanes, ()), rel=error)
    for chunk in (Chunk(0, 32), Chunk(1000, 128), Chunk(3500, 512)):
        learned = pace.fixed_seconds + pace.chunk_seconds(chunk)
        assert learned == pytest.approx(cost(0, (chunk,)), rel=error)


def test_lanes_that_were_never_measured_take_the_time_of_the_nearest() -> None:
    pace = Pace()
    assert pace.decode_seconds(0) == 0 and pace.decode_seconds(3) is None
    pace.note(2, (), 0.02)
    pace.note(6, (), 0.06)
    assert [pace.decode_seconds(lanes) for lanes in (1, 3, 4, 5, 9)] == [0.02, 0.02, 0.06, 0.06, 0.06]


def test_one_size_alone_is_taken_for_a_cost_of_its_rows() -> None:
    pace = Pace()
    assert not pace.knows_chunks
    for _ in range(4):
        pace.note(0, (Chunk(0, 512),), 0.512)
    assert pace.knows_chunks
    assert pace.fixed_seconds < 5e-3
    assert pace.decode_seconds(8) == pytest.approx(0.008, rel=0.6)  # not measured: taken for rows of a prompt
    assert pace.fixed_seconds + pace.chunk_seconds(Chunk(0, 512)) == pytest.approx(0.512, rel=0.01)


def test_chunks_beside_lanes_that_were_never_measured_tell_nothing() -> None:
    pace = Pace()
    pace.note(3, (Chunk(0, 64),), 0.1)
    assert not pace.knows_chunks


@pytest.mark.parametrize("position", [0, 1, 777, 5000])
@pytest.mark.parametrize("seconds", [0.001, 0.05, 1.0])
def test_the_rows_within_a_time_are_the_most_that_take_no_longer(position: int, seconds: float) -> None:
    pace = taught(random.Random(2))
    rows = pace.rows_within(seconds, position)
    assert pace.chunk_seconds(Chunk(position, rows)) <= seconds * (1 + 1e-9)
    assert pace.chunk_seconds(Chunk(position, rows + 1)) > seconds
    assert pace.rows_within(0.0, position) == pace.rows_within(-1.0, position) == 0


def test_a_step_that_no_clock_could_tell_is_left_out() -> None:
    pace = Pace()
    pace.note(1, (), 0.0)
    pace.note(0, (Chunk(0, 4),), 0.0)
    assert pace.decode_seconds(1) is None and not pace.knows_chunks


def test_rows_keep_a_cost_in_noise_that_would_hide_it() -> None:
    pace, rng = Pace(), random.Random(3)
    for _ in range(60):
        chunk = Chunk(rng.randrange(4000), 16)
        pace.note(0, (chunk,), cost(0, (chunk,)) * rng.uniform(0.3, 3))
    assert pace.chunk_seconds(Chunk(0, 16)) > 0
    assert 0 < pace.rows_within(0.5, 0) < 1000


def test_rows_that_cost_nothing_are_not_bounded() -> None:
    pace = Pace()
    pace.note(1, (), 0.1)
    pace.note(1, (Chunk(0, 16),), 0.1)
    assert pace.rows_within(0.1, 0) > 512
