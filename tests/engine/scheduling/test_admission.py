"""Whose turn it is, and how long anyone can be passed over."""

import random
from itertools import count, cycle

import pytest

from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.admission import AGEING, PRIORITY_LIMIT, WaitingQueue, rank_of
from tests.engine.scripted import a_request

TURN = 50


def a_sequence(priority: int = 0, caller: bytes = b"") -> TokenSequence:
    request = a_request(priority=priority, caller=caller)
    return TokenSequence(request, 4, TokenChooser(request))


def admitted(queue: WaitingQueue, running: list[TokenSequence], lanes: int = 1000) -> list[TokenSequence]:
    """Those that get a lane while all that did keep theirs, in order."""
    order = []
    while len(running) < lanes:
        sequence = queue.next(running, lambda _: True)
        if sequence is None:
            break
        queue.discard(sequence)
        running.append(sequence)
        order.append(sequence)
    return order


def queue_of(*sequences: TokenSequence, across_callers: bool = False) -> WaitingQueue:
    queue = WaitingQueue(TURN, across_callers=across_callers)
    for sequence in sequences:
        queue.add(sequence, [])
    return queue


def check_order(live: list[TokenSequence]) -> None:
    """Each caller's requests stand in order of urgency, no two at one rank, and none before its arrival."""
    assert len({rank_of(sequence) for sequence in live}) == len(live)
    for caller in {sequence.request.caller for sequence in live}:
        own = [rank_of(sequence) for sequence in live if sequence.request.caller == caller]
        assert sorted(own) == sorted(own, key=lambda rank: rank[1:])


def test_equals_are_served_in_order_of_arrival() -> None:
    sequences = [a_sequence() for _ in range(5)]
    assert admitted(queue_of(*sequences), []) == sequences


def test_the_lower_priority_is_served_first_until_waiting_has_made_up_for_it() -> None:
    patient = a_sequence(priority=1)
    hasty = [a_sequence(priority=0) for _ in range(2 * AGEING)]
    order = admitted(queue_of(patient, *hasty), [])
    assert order == [*hasty[: AGEING - 1], patient, *hasty[AGEING - 1 :]]


def test_callers_take_turns_and_one_that_holds_lanes_comes_after_one_that_holds_none() -> None:
    flood = [a_sequence(caller=b"a") for _ in range(6)]
    few = [a_sequence(caller=b"b") for _ in range(2)]
    assert admitted(queue_of(*flood, *few), []) == [flood[0], few[0], flood[1], few[1], *flood[2:]]
    busy = [a_sequence(caller=b"a") for _ in range(3)]
    flood, few = [a_sequence(caller=b"a") for _ in range(2)], [a_sequence(caller=b"b") for _ in range(4)]
    assert admitted(queue_of(*flood, *few), busy) == [*few[:3], flood[0], few[3], flood[1]]


def test_a_priority_brings_a_request_before_those_of_its_caller_and_not_of_another() -> None:
    other, plain, urgent = a_sequence(caller=b"b"), a_sequence(caller=b"a"), a_sequence(-100, b"a")
    assert admitted(queue_of(other, plain, urgent), []) == [other, urgent, plain]
    other, plain, urgent = a_sequence(caller=b"b"), a_sequence(caller=b"a"), a_sequence(-100, b"a")
    assert admitted(queue_of(other, plain, urgent, across_callers=True), []) == [urgent, other, plain]


def test_a_priority_brings_no_request_before_a_running_one_of_another_caller() -> None:
    mine, other, urgent = a_sequence(caller=b"a"), a_sequence(caller=b"b"), a_sequence(-100, b"a")
    queue = queue_of(mine, other)
    running = admitted(queue, [])
    queue.add(urgent, running)
    assert sorted([mine, other, urgent], key=rank_of) == [other, urgent, mine]


def greedy_admissions(priorities: list[int], *, across_callers: bool) -> int:
    """Of 400 lanes that come free, those that a caller gets beside one without priorities; both wait always."""
    lanes, waiting = 8, 256
    queue = WaitingQueue(lanes + waiting, across_callers=across_callers)
    greedy = cycle(priorities)
    running, order = list[TokenSequence](), list[TokenSequence]()

    def send(caller: bytes) -> None:
        queue.add(a_sequence(next(greedy) if caller == b"greedy" else 0, caller), running)

    for caller in [b"greedy", b"honest"] * (waiting // 2):
        send(caller)
    while len(order) < 400 + lanes:
        for sequence in admitted(queue, running, lanes):
            order.append(sequence)
            send(sequence.request.caller)
        del running[0]
    return sum(sequence.request.caller == b"greedy" for sequence in order[lanes:])


@pytest.mark.parametrize("priorities", [[-100], [100, -100], list(range(100, -100, -1))])
def test_no_priorities_get_a_caller_more_than_its_turns(priorities: list[int]) -> None:
    assert greedy_admissions([0], across_callers=False) == 200
    assert greedy_admissions(priorities, across_callers=False) <= 200


def test_priorities_that_count_across_callers_get_a_caller_most_turns() -> None:
    assert greedy_admissions([-100], across_callers=True) > 300


def test_one_that_was_here_before_gets_its_old_place() -> None:
    sequences = [a_sequence() for _ in range(4)]
    queue = queue_of(*sequences)
    running = admitted(queue, [], lanes=2)
    queue.add(running[1], running[:1])
    assert list(queue) == sequences[1:] and len(queue) == 3


def test_those_that_may_not_start_are_passed_over_and_keep_their_place() -> None:
    held, free = a_sequence(), a_sequence()
    queue = queue_of(held, free)
    assert queue.next([], lambda sequence: sequence is not held) is free
    assert queue.next([], lambda _: False) is None
    assert list(queue) == [held, free]


def test_taking_out_what_is_not_in_is_harmless() -> None:
    queue = queue_of(a_sequence())
    queue.discard(a_sequence())
    queue.discard(a_sequence(caller=b"b"))
    assert len(queue) == 1


@pytest.mark.parametrize("across_callers", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_passed_over_more_often_than_the_bound_says(seed: int, across_callers: bool) -> None:
    rng = random.Random(seed)
    queue, running, lanes = WaitingQueue(TURN, across_callers=across_callers), list[TokenSequence](), rng.randint(1, 6)
    callers, priorities = [b"a", b"b", b"c"][: rng.randint(1, 3)], rng.choice([[0], [0, 1], [-2, 0, 3], [-500, 500]])
    fresh = (bytes([n % 256, n // 256]) for n in count())  # an endless supply of callers that hold no lane
    waiting = list[TokenSequence]()
    overtaken_by = dict[TokenSequence, int]()
    for _ in range(600):
        for _ in range(rng.randint(0, 3)):
            caller = next(fresh) if rng.random() < 0.3 else rng.choice(callers)
            waiting.append(a_sequence(rng.choice(priorities), caller))
            queue.add(waiting[-1], running)
            overtaken_by[waiting[-1]] = 0
        check_order([*queue, *running])
        for _ in range(rng.randint(0, min(2, len(running)))):
            running.remove(rng.choice(running))
        for sequence in admitted(queue, running, lanes):
            for other in waiting[: waiting.index(sequence)]:
                overtaken_by[other] += 1
            waiting.remove(sequence)
    width = min(max(priorities), PRIORITY_LIMIT) - max(min(priorities), -PRIORITY_LIMIT)
    assert max(overtaken_by.values()) <= AGEING * width + TURN * lanes
