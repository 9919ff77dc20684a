"""What Gated DeltaNet layers remember of a sequence, and how the rows of a step are told to them.

A sequence has a slot: float32 [slots, all layers], and in it, for each layer,

    state   [V heads][parts][key_dim][part columns]   the matrix S of each head, cut into parts by columns
    conv    [3][channels]                              the last inputs of the convolution, the newest last

A step whose rows may be taken back (drafts to verify) writes no slot. It leaves what its rows would do there in a
trail, [slots * 2, all layers], in turns of two, and for each layer up to TRAIL_ROWS of

    raw [channels], key [K heads, key_dim], delta [V heads, value_dim], decay [V heads, padded to 16]

The sequence's next step first does what the rows that were kept would have done, with their very operations, and then
goes on: so a step of drafts moves as many bytes of state as any other. Channels are q, k and v, head by head.
"""

from dataclasses import dataclass

import numpy as np

from kernels.build.jit import njit_inline

TAPS = 4  # of the convolution
HISTORY = TAPS - 1
TRAIL_ROWS = 8
# Columns of a part at most: 32 KiB of state of 128 rows, which stay in a core's first cache.
_PART_COLUMNS = 64

# The rows of one sequence in a step.
SPAN = np.dtype(
    [
        ("first_row", "i8"),
        ("rows", "i8"),  # 0: only what is pending is done
        ("slot", "i8"),
        ("is_first", "i8"),  # 1: the sequence begins; the slot counts as empty
        ("pending", "i8"),  # rows of the trail that are to be done first
        ("pending_trail", "i8"),  # which trail they are in
        ("trail", "i8"),  # the trail that these rows are left in, and not in the slot; -1: none
    ]
)
SPANS = np.dtype(
    [
        ("rows", "i8"),
        ("count", "i8"),
        ("spans", "u8"),  # SPAN [count]
        ("row_spans", "u8"),  # int64 [rows]: the number of each row's span
    ]
)
# What the ops of one layer share.
LAYER = np.dtype(
    [
        ("spans", "u8"),  # address of the SPANS record
        ("key_heads", "i8"),
        ("value_heads", "i8"),
        ("key_dim", "i8"),
        ("value_dim", "i8"),
        ("part_columns", "i8"),
        ("channels", "i8"),
        ("is_tiled", "i8"),  # 1: the K head of V head h is h % key_heads; 0: h // (value_heads // key_heads)
        ("raw", "u8"),  # float32 [rows, channels]: inputs of the convolution
        ("mixed", "u8"),  # float32 [rows, channels]: its outputs; q and k normalized
        ("decay", "u8"),  # float32 [rows, gate_stride]: a before the convolution's op, exp(g) after it
        ("beta", "u8"),  # float32 [rows, gate_stride]: b, then sigmoid(b)
        ("gate_stride", "i8"),
        ("states", "u8"),
        ("slot_bytes", "i8"),
        ("state_at", "i8"),  # bytes within a slot
        ("conv_at", "i8"),
        ("trails", "u8"),
        ("trail_bytes", "i8"),
        ("trail_at", "i8"),  # bytes within a trail
        ("trail_row_bytes", "i8"),
    ]
)
_SPAN_BYTES = SPAN.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Heads of a layer; dimensions are multiples of 16."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def channels(self) -> int:
        """Columns of q, k and v."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def part_columns(self) -> int:
        """Columns of a part: the same on every machine, so that a state can be kept on disk."""
        columns = _PART_COLUMNS
        while self.value_dim % columns:
            columns //= 2
        return columns

    @property
    def gate_stride(self) -> int:
        """Floats of a row of decays or betas."""
        return -(-self.value_heads // 16) * 16

    @property
    def state_floats(self) -> int:
        """Floats of the matrices S of a layer."""
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def slot_floats(self) -> int:
        """Floats of a layer in a slot."""
        return self.state_floats + HISTORY * self.channels

    @property
    def trail_row_floats(self) -> int:
        """Floats of a row of a layer in a trail."""
        return self.channels + self.key_heads * self.key_dim + self.value_heads * self.value_dim + self.gate_stride


@njit_inline
def span_at(spans, number):
    """The address of a SPAN."""
    return np.uintp(spans.spans) + np.uintp(number * _SPAN_BYTES)


@njit_inline
def slot_place(layer, slot, at):
    """The address `at` bytes into a slot."""
    return np.uintp(layer.states) + np.uintp(slot * layer.slot_bytes + at)


@njit_inline
def trail_row(layer, trail, row):
    """The address of a layer's row in a trail, where its raw channels begin."""
    at = trail * layer.trail_bytes + layer.trail_at + row * layer.trail_row_bytes
    return np.uintp(layer.trails) + np.uintp(at)


@njit_inline
def trail_key(layer, row):
    """The address of the keys in a trail's row."""
    return row + np.uintp(layer.channels * 4)


@njit_inline
def trail_delta(layer, row):
    """The address of the deltas in a trail's row."""
    return row + np.uintp((layer.channels + layer.key_heads * layer.key_dim) * 4)


@njit_inline
def trail_decay(layer, row):
    """The address of the decays in a trail's row."""
    return trail_delta(layer, row) + np.uintp(layer.value_heads * layer.value_dim * 4)
