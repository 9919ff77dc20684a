"""Routing of a mixture of experts: which experts each row goes to, with what weight, and the rows sorted by expert.

    score    softmax(logits) over all experts, or sigmoid(logits)
    choice   the `active` largest of score + bias, in falling order; ties go to the lower expert
    weight   scale * score, or scale * score / (sum of the chosen scores + 1e-20)

A row's part follows from that row alone (law 1): exp is the own one, softmax sums 16 fixed lanes and a fixed tree, the
chosen scores are added in rank order. A logit that is not finite makes all weights of its row NaN, so that it shows,
and the choice stays within bounds. The pairs (row, slot) are then sorted by expert, row, slot, and cut into the tiles
that packed rows stand in (activations.py), each expert's rows by their own number.

Sources: the routers of Qwen3-MoE (softmax) and DeepSeek-V3 (sigmoid, bias of the choice, scale, 1e-20).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import tile_width, widest_tile
from kernels.run.atomics import atomic_add, atomic_store
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.exp import exp_f32x16
from kernels.simd.vectors import (
    fma,
    keep_first,
    load_f32,
    load_f32x16,
    load_i64,
    maximum,
    reduce_add,
    reduce_max,
    splat_f32x16,
    store_f32,
    store_i64,
    store_vector,
)

SOFTMAX, SIGMOID = 0, 1  # kinds of scoring

# What routing hands to the ops that follow; one step's at a time. A "pair" is row * active + slot, a "place" its
# number in sorted order.
ROUTING = np.dtype(
    {
        "names": ["active", "weights", "chosen", "pairs", "places", "segments", "touched", "tiles", "touched_count",
                  "tile_count", "finished"],
        "formats": ["i8", *["u8"] * 7, *["i8"] * 3],
    }
)  # fmt: skip
_FINISHED_AT = ROUTING.fields["finished"][1]  # type: ignore[index]

ROUTE = op_record(
    logits="u8",  # float32 [rows, logits_stride], the scores afterwards
    logits_stride="i8",  # a multiple of 16
    experts="i8",
    scoring="i8",  # SOFTMAX or SIGMOID
    bias="u8",  # float32 [experts], added to the scores for the choice only; 0: none
    renormalize="i8",  # 1: divide by the sum of the chosen scores
    scale="f4",
    crossover="i8",  # as PACKED has it
    rows="u8",  # address of the row count, int64
    routing="u8",  # address of a ROUTING record
)


@dataclass(frozen=True)
class Routing:
    """Buffers for the routing of up to `max_rows` rows; layers that run one after the other can share one."""

    active: int
    weights: np.ndarray  # float32 [max_rows, active]
    chosen: np.ndarray  # int64 [max_rows, active], experts in rank order
    pairs: np.ndarray  # int64 [max_rows * active], by place
    places: np.ndarray  # int64 [max_rows, active]
    segments: np.ndarray  # int64 [experts + 2]: expert e has the places segments[e] .. segments[e + 1] - 1
    touched: np.ndarray  # int64 [experts], the experts that have rows, ascending
    tiles: np.ndarray  # int64 [max_rows * active + 1]: the first place of each tile, then the number of places
    record: np.ndarray  # ROUTING [1]

    @classmethod
    def allocate(cls, max_rows: int, experts: int, active: int) -> "Routing":
        """Make zeroed buffers."""
        assert 0 < active <= experts
        routing = cls(
            active=active,
            weights=np.zeros((max_rows, active), np.float32),
            chosen=np.zeros((max_rows, active), np.int64),
            pairs=np.zeros(max_rows * active, np.int64),
            places=np.zeros((max_rows, active), np.int64),
            segments=np.zeros(experts + 2, np.int64),
            touched=np.zeros(experts, np.int64),
            tiles=np.zeros(max_rows * active + 1, np.int64),
            record=np.zeros(1, ROUTING),
        )
        routing.record["active"] = active
        for name in ("weights", "chosen", "pairs", "places", "segments", "touched", "tiles"):
            routing.record[name] = getattr(routing, name).ctypes.data
        return routing

    @property
    def address(self) -> int:
        """The address of the ROUTING record."""
        return int(self.record.ctypes.data)


@njit_inline
def _scores(logits, experts, scoring):
    """Overwrite a row's logits with their scores; returns 0, or NaN where a logit is not finite."""
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    lowest = splat_f32x16(np.float32(-np.inf))
    largest, poison = lowest, zero
    for first in range(0, experts, 16):
        x, count = load_f32x16(logits + np.uintp(first * 4)), np.int32(experts - first)
        largest = maximum(largest, keep_first(x, count, lowest))
        poison = fma(keep_first(x, count, zero), zero, poison)
    top, sums = splat_f32x16(reduce_max(largest)), zero
    for first in range(0, experts, 16):
        address, count = logits + np.uintp(first * 4), np.int32(experts - first)
        x = load_f32x16(address)
        if scoring == SIGMOID:
            score = one / (one + exp_f32x16(zero - x))
        else:
            score = exp_f32x16(x - top)
            sums = sums + keep_first(score, count, zero)
        store_vector(keep_first(score, count, x), address)
    if scoring != SIGMOID:
        total = splat_f32x16(reduce_add(sums))
        for first in range(0, experts, 16):
            address, count = logits + np.uintp(first * 4), np.int32(experts - first)
            x = load_f32x16(address)
            store_vector(keep_first(x / total, count, x), address)
    return reduce_add(poison)


@njit_inline
def _choose(scores, bias, experts, active, chosen, values):
    """Write the `active` largest of score + bias in falling order to `values`, and their experts to `chosen`."""
    count = np.int64(0)
    for expert in range(experts):
        value = load_f32(scores + np.uintp(expert * 4))
        if bias != 0:
            value = value + load_f32(bias + np.uintp(expert * 4))
        place = count
        if count < active:
            count += 1
        elif value > load_f32(values + np.uintp((active - 1) * 4)):
            place = active - 1
        else:
            continue
        while place > 0 and value > load_f32(values + np.uintp((place - 1) * 4)):
            store_f32(load_f32(values + np.uintp((place - 1) * 4)), values + np.uintp(place * 4))
            store_i64(load_i64(chosen + np.uintp((place - 1) * 8)), chosen + np.uintp(place * 8))
            place -= 1
        store_f32(value, values + np.uintp(place * 4))
        store_i64(np.int64(expert), chosen + np.uintp(place * 8))


@njit_inline
def _weigh(scores, active, chosen, renormalize, scale, poison, weights):
    """Write the weights of a row's chosen experts."""
    total = np.float32(0)
    for slot in range(active):
        total = total + load_f32(scores + np.uintp(load_i64(chosen + np.uintp(slot * 8)) * 4))
    total = total + np.float32(1e-20)
    for slot in range(active):
        weight = load_f32(scores + np.uintp(load_i64(chosen + np.uintp(slot * 8)) * 4))
        if renormalize != 0:
            weight = weight / total
        store_f32(weight * scale + poison, weights + np.uintp(slot * 4))


@njit_inline
def _sort(routing, rows, experts, crossover):
    """Sort the pairs by expert, row, slot (a counting sort) and list the experts that have rows, and the tiles."""
    pairs, chosen, segments = rows * routing.active, np.uintp(routing.chosen), np.uintp(routing.segments)
    for i in range(experts + 2):
        store_i64(np.int64(0), segments + np.uintp(i * 8))
    for pair in range(pairs):
        # Counted two places up: after the sums below, segments[e + 1] is where e's next pair goes.
        count = segments + np.uintp((load_i64(chosen + np.uintp(pair * 8)) + 2) * 8)
        store_i64(load_i64(count) + 1, count)
    for i in range(2, experts + 2):
        count = segments + np.uintp(i * 8)
        store_i64(load_i64(count) + load_i64(count - np.uintp(8)), count)
    for pair in range(pairs):
        cursor = segments + np.uintp((load_i64(chosen + np.uintp(pair * 8)) + 1) * 8)
        place = load_i64(cursor)
        store_i64(pair, np.uintp(routing.pairs) + np.uintp(place * 8))
        store_i64(place, np.uintp(routing.places) + np.uintp(pair * 8))
        store_i64(place + 1, cursor)
    _list_tiles(routing, experts, crossover)


@njit_inline
def _list_tiles(routing, experts, crossover):
    """List the experts that have rows, and where their tiles start."""
    touched, tiles = np.int64(0), np.int64(0)
    for expert in range(experts):
        segment = np.uintp(routing.segments) + np.uintp(expert * 8)
        start, end = load_i64(segment), load_i64(segment + np.uintp(8))
        if start < end:
            store_i64(np.int64(expert), np.uintp(routing.touched) + np.uintp(touched * 8))
            touched += 1
        widest = widest_tile(end - start, crossover)
        while start < end:
            store_i64(start, np.uintp(routing.tiles) + np.uintp(tiles * 8))
            tiles += 1
            start += tile_width(start, end, widest)
        store_i64(end, np.uintp(routing.tiles) + np.uintp(tiles * 8))
    routing.touched_count = touched
    routing.tile_count = tiles


@kernel(KERNEL_SIGNATURE)
def route_kernel() -> Any:
    """Compile the routing op: a task is one row, and whoever finishes the last row sorts."""

    def route_op(op, thread, threads):
        route = record_at(op, ROUTE)
        routing = record_at(np.uintp(route.routing), ROUTING)
        rows, experts, active = load_i64(np.uintp(route.rows)), route.experts, routing.active
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            scores = np.uintp(route.logits) + np.uintp(row * route.logits_stride * 4)
            chosen = np.uintp(routing.chosen) + np.uintp(row * active * 8)
            weights = np.uintp(routing.weights) + np.uintp(row * active * 4)
            poison = _scores(scores, experts, route.scoring)
            _choose(scores, np.uintp(route.bias), experts, active, chosen, weights)
            _weigh(scores, active, chosen, route.renormalize, route.scale, poison, weights)
            finished = np.uintp(route.routing) + np.uintp(_FINISHED_AT)
            if atomic_add(finished, 1) == rows - 1:
                atomic_store(0, finished)
                _sort(routing, rows, experts, route.crossover)

    return route_op
