"""Programs and the team that runs them: every task once, barriers where asked for, threads that come and go."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.build.jit import KERNEL_SIGNATURE, address, c_function, njit_inline
from kernels.run.atomics import atomic_add
from kernels.run.program import OP_BYTES, Program, claim_task, first_phase, monotonic_ns, op_record, record_at, run_ops
from kernels.run.team import Team, _choose_program
from kernels.simd.vectors import load_i64
from tests.kernels.ops import a_team

TASKS = 13
# Adds source[t] to target[t] for each task t, or target[t - 1] of the op before where `shift` is set.
ADD = op_record(source="u8", target="u8", shift="i8")


@c_function(KERNEL_SIGNATURE)
def add_op(op: Any, thread: Any, threads: Any) -> None:
    add = record_at(op, ADD)
    while True:
        task = claim_task(op)
        if task >= 13:
            return
        value = load_i64(np.uintp(add.source) + np.uintp((task + add.shift) % 13 * 8))
        atomic_add(np.uintp(add.target) + np.uintp(task * 8), value)


def adding(source: np.ndarray, target: np.ndarray, program: Program, *, shift: int = 0, barrier: bool = True) -> None:
    program.emit(
        ADD, address(add_op), barrier=barrier, source=source.ctypes.data, target=target.ctypes.data, shift=shift
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
def test_every_task_of_every_op_runs_once_a_step(threads: int) -> None:
    source, targets = np.arange(TASKS), [np.zeros(TASKS, np.int64) for _ in range(5)]
    program = Program()
    for index, target in enumerate(targets):
        adding(source, target, program, barrier=index == 4)
    with a_team(threads) as team:
        program.finish()
        for step in range(1, 301):
            team.run(program)
            assert all(np.array_equal(target, step * source) for target in targets)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_an_op_sees_all_that_was_done_before_the_barrier(threads: int) -> None:
    rows = np.zeros((40, TASKS), np.int64)
    rows[0] = np.arange(TASKS)
    program = Program()
    for index in range(1, 40):  # each op turns the row before it by one place
        adding(rows[index - 1], rows[index], program, shift=1)
    program.finish()
    with a_team(threads) as team:
        for _ in range(100):
            rows[1:] = 0
            team.run(program)
            assert np.array_equal(rows[39], np.roll(np.arange(TASKS), -39))


def test_a_team_runs_different_programs_in_turn() -> None:
    source, totals = np.ones(TASKS, np.int64), [np.zeros(TASKS, np.int64) for _ in range(2)]
    programs = [Program(), Program()]
    for count, (program, total) in enumerate(zip(programs, totals, strict=True), start=1):
        for _ in range(count):
            adding(source, total, program)
        program.finish()
    with a_team(2) as team:
        for _ in range(50):
            for program in programs:
                team.run(program)
    assert set(totals[0]) == {50} and set(totals[1]) == {100}


@njit_inline
def come_late(program: Any, count: Any, phase: Any) -> None:
    run_ops(program, count, phase, np.int64(1), np.int64(2))


@njit_inline
def phase_of(program: Any) -> Any:
    return first_phase(program)


def test_a_thread_that_comes_when_all_is_done_changes_nothing() -> None:
    source, target, program = np.ones(TASKS, np.int64), np.zeros(TASKS, np.int64), Program()
    for index in range(6):
        adding(source, target, program, barrier=index % 2 == 1)
    place, count = np.uintp(program.finish().address), np.int64(len(program))
    with a_team(1) as team:
        for run in range(1, 4):
            phase = phase_of(place)
            team.run(program)
            assert set(target) == {6 * run}
            come_late(place, count, phase)
            assert set(target) == {6 * run}
    come_late(place, count, phase_of(place))  # one that comes in time does all tasks alone
    assert set(target) == {24}


def segment_word(program: Program) -> np.ndarray:
    """The segment's word of a program of one op; see kernels/run/program.py."""
    start = program.address - program._array.ctypes.data
    return program._array[start + 200 : start + 208].view(np.int64)


def test_who_finds_a_segment_closing_waits_until_it_is_closed() -> None:
    source, target, program = np.ones(TASKS, np.int64), np.zeros(TASKS, np.int64), Program()
    adding(source, target, program)
    word = segment_word(program.finish())
    word[0] = 1 << 20  # as a thread leaves it that loses its core between the two steps of closing
    late = threading.Thread(
        target=come_late, args=(np.uintp(program.address), np.int64(1), np.int64(0)), name="late", daemon=True
    )
    late.start()
    late.join(0.2)
    assert late.is_alive(), "it went on to a run in which the segment is not open yet"
    word[0] = 2 << 20
    late.join(20)
    assert not late.is_alive() and set(target) == {0}


def test_a_program_that_was_just_chosen_is_closed_to_late_workers() -> None:
    source, totals = np.ones(TASKS, np.int64), [np.zeros(TASKS, np.int64) for _ in range(2)]
    programs = [Program(), Program()]
    for program, total in zip(programs, totals, strict=True):
        adding(source, total, program)
        program.finish()
    with a_team(1) as team:
        team.run(programs[0])
        _choose_program.call(team._address, programs[1].address, 1)
        phase = np.int64(team._record["phase"][0])
        come_late(np.uintp(programs[1].address), np.int64(1), phase)
        assert set(totals[1]) == {0}
        team.run(programs[1])
    assert set(totals[0]) == {1} and set(totals[1]) == {1}


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_no_segment_is_ever_lost_among_more_threads_than_cores(threads: int) -> None:
    source, targets = np.ones(TASKS, np.int64), [np.zeros(TASKS, np.int64) for _ in range(20)]
    program = Program()
    for target in targets:
        adding(source, target, program)
    program.finish()
    with a_team(threads) as team:
        deadline, step = time.monotonic() + 2, 0
        while time.monotonic() < deadline:
            for _ in range(100):
                team.run(program)
            step += 100
            assert all(set(target) == {step} for target in targets)


def state_of(thread: threading.Thread) -> str:
    """The state that Linux reports: R runs, S sleeps."""
    status = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return status.rpartition(")")[2].split()[0]


def wait_until_asleep(worker: threading.Thread) -> None:
    deadline = time.monotonic() + 20
    while state_of(worker) != "S":
        assert time.monotonic() < deadline, "the worker does not go to sleep"
        time.sleep(0.001)


Workers = Callable[[], list[threading.Thread]]


@pytest.fixture
def workers() -> Workers:
    """Returns the threads that the test itself has started and not ended."""
    others = set(threading.enumerate())
    return lambda: [thread for thread in threading.enumerate() if thread not in others]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system has no /proc")
def test_idle_workers_sleep_and_wake_for_the_next_step(workers: Workers) -> None:
    source, target, program = np.ones(TASKS, np.int64), np.zeros(TASKS, np.int64), Program()
    adding(source, target, program)
    program.finish()
    with a_team(3) as team:
        assert len(workers()) == 2
        for step in range(1, 31):
            for worker in workers():
                wait_until_asleep(worker)
            team.run(program)
            assert set(target) == {step}


def test_steps_right_after_one_another_and_after_pauses_all_run() -> None:
    source, target, program = np.ones(TASKS, np.int64), np.zeros(TASKS, np.int64), Program()
    adding(source, target, program)
    program.finish()
    pauses = np.random.default_rng(0).exponential(1e-4, 300)
    with a_team(2) as team:
        for pause in pauses:  # around the time after which a worker goes to sleep
            team.run(program)
            time.sleep(pause)
    assert set(target) == {len(pauses)}


def test_stopping_ends_the_threads_whether_they_spin_or_sleep(workers: Workers) -> None:
    for pause in (0, 0.02):
        team = Team(3)
        time.sleep(pause)
        team.stop()
        assert workers() == []


def test_a_thousand_teams_leave_no_thread_behind(workers: Workers) -> None:
    source, target, program = np.ones(TASKS, np.int64), np.zeros(TASKS, np.int64), Program()
    adding(source, target, program)
    program.finish()
    for count in range(1000):
        with a_team(2) as team:
            if count % 10 == 0:
                team.run(program)
    assert workers() == [] and set(target) == {100}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_timed_step_does_the_same_and_says_what_each_op_took(threads: int) -> None:
    source, targets = np.arange(TASKS), [np.zeros(TASKS, np.int64) for _ in range(3)]
    program, times = Program(), np.zeros((3, 2), np.int64)
    for index, target in enumerate(targets):
        adding(source, target, program, barrier=index != 1)
    program.finish()
    with a_team(threads) as team:
        begin = time.monotonic_ns()
        for _ in range(50):
            team.run(program, times)
            team.run(program)
        elapsed = time.monotonic_ns() - begin
    assert all(np.array_equal(target, 100 * source) for target in targets)
    assert (times[:, 0] > 0).all() and (times[[0, 2], 1] > 0).all() and times[1, 1] == 0
    assert times.sum() < elapsed


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seconds", [0, 0.01])
def test_what_is_done_meanwhile_is_done_once_and_the_step_is_whole(threads: int, seconds: float) -> None:
    """Thread 0 comes when the others have hardly begun, or are through."""
    source, targets, calls = np.arange(TASKS), [np.zeros(TASKS, np.int64) for _ in range(3)], list[float]()
    program = Program()
    for target in targets:
        adding(source, target, program)
    program.finish()

    def pause() -> None:
        calls.append(seconds)
        time.sleep(seconds)

    with a_team(threads) as team:
        for step in range(1, 21):
            team.run(program, meanwhile=pause)
            assert len(calls) == step and all(np.array_equal(target, step * source) for target in targets)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fault_meanwhile_comes_after_the_end_of_the_step(threads: int) -> None:
    source, target, program = np.arange(TASKS), np.zeros(TASKS, np.int64), Program()
    adding(source, target, program)
    program.finish()

    def fail() -> None:
        raise ZeroDivisionError

    with a_team(threads) as team:
        with pytest.raises(ZeroDivisionError):
            team.run(program, meanwhile=fail)
        assert np.array_equal(target, source)
        team.run(program)
        assert np.array_equal(target, 2 * source)


def test_ops_have_the_names_that_they_were_given() -> None:
    program, array = Program(), np.zeros(TASKS, np.int64)
    fields = {"source": array.ctypes.data, "target": array.ctypes.data, "shift": 0}
    program.emit(ADD, address(add_op), "add numbers", **fields)
    program.emit(ADD, address(add_op), **fields)
    assert program.names == ["add numbers", "op"]


def test_the_ticket_of_an_op_has_a_cache_line_of_its_own() -> None:
    program = Program()
    array = np.zeros(TASKS, np.int64)
    for _ in range(3):
        adding(array, array.copy(), program)
    program.finish()
    assert len(program) == 3 and program.address % 64 == 0
    fields = ADD.fields
    assert fields is not None
    assert ADD.itemsize == OP_BYTES and all(fields[name][1] < 192 for name in fields if name != "ticket")
    assert fields["ticket"][1] == 192


def test_an_op_without_a_field_is_refused() -> None:
    with pytest.raises(AssertionError, match="shift"):
        Program().emit(ADD, address(add_op), source=0, target=0)


def test_a_program_must_end_with_a_barrier() -> None:
    program, array = Program(), np.zeros(TASKS, np.int64)
    adding(array, array, program, barrier=False)
    with pytest.raises(AssertionError, match="barrier"):
        program.finish()


@njit_inline
def _now():
    return monotonic_ns()


def test_the_clock_is_that_of_python() -> None:
    before, now, after = time.monotonic_ns(), _now(), time.monotonic_ns()
    assert before <= now <= after
