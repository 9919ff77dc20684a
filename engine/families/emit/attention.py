"""Emits attention: queries and keys are turned, keys and values are written to their blocks, and queries attend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from engine.families.emit.attention_state import AttentionShape
from engine.families.emit.emitter import Emitter
from engine.families.emit.run_state import Rows, RunState
from kernels.attention import attention, rotary


class Rotation(NamedTuple):
    """How a layer turns queries and keys by their positions."""

    angles: int  # address of a table as ROTARY has it, one row for each position
    dimensions: int  # of a head, that turn
    pairing: int  # NEIGHBOURS or HALVES


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRows:
    """What attention reads, and what it leaves; layers of one shape share it."""

    query: Rows
    key: Rows
    value: Rows
    attended: Rows
    gated: Rows | None  # of layers with gates: each head's query, then its gate

    @classmethod
    def allocate(cls, state: RunState, shape: AttentionShape, *, gated: bool = False) -> Self:
        """Make the buffers; with gates, queries are read from `gated` in place of `query`."""
        query = shape.heads * shape.key_dim
        return cls(
            query=state.new_rows("query", query),
            key=state.new_rows("key", shape.kv_heads * shape.key_dim),
            value=state.new_rows("value", shape.kv_heads * shape.value_dim),
            attended=state.new_rows("attended", shape.heads * shape.value_dim),
            gated=state.new_rows("query_gate", 2 * query) if gated else None,
        )


def attend(
    emit: Emitter,
    shape: AttentionShape,
    rotation: Rotation,
    rows: AttentionRows,
    *,
    biases: Mapping[str, int] = MappingProxyType({}),
    norms: Sequence[str] = (),
    epsilon: float,
) -> Rows:
    """Rotate, write keys and values, and attend; returns rows.attended.

    biases: tensors with the biases of q, k and v, and their lengths; norms: tensors for the heads of q and k, and the
    norms' epsilon.
    """
    kv_type, state, head_dim = emit.capacity.kv_type, emit.state.attention, shape.head_dim
    group = state.group(shape.window)
    cache = group.add_layer(shape.key_bytes(kv_type), shape.value_bytes(kv_type))
    shared = {
        "step": emit.state.inputs.record.ctypes.data,
        "group": group.record.ctypes.data,
        "query": rows.query.address,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": head_dim,
        "keys": cache.keys.ctypes.data,
        "values": cache.values.ctypes.data,
        "block_bytes": kv_type.block_bytes(head_dim),
    }
    emit.op(
        rotary.ROTARY,
        rotary.rotary_kernel(kv_type.number),
        "rotary",
        gated=0 if rows.gated is None else rows.gated.address,
        key=rows.key.address,
        value=rows.value.address,
        biases=emit.joined_vectors(biases),
        norms=emit.joined_vectors(dict.fromkeys(norms, head_dim)),
        epsilon=epsilon,
        rotary_dim=rotation.dimensions,
        pairing=rotation.pairing,
        scale=shape.scale,
        angles=rotation.angles,
        **shared,
    )
    emit.op(
        attention.ATTENTION,
        attention.attention_kernel(kv_type.number, emit.tier),
        "attention",
        output=rows.attended.address,
        window=shape.window,
        scratch=state.scratch.ctypes.data,
        scratch_floats=state.scratch.shape[1],
        partials=state.partials.ctypes.data,
        counters=state.counters.ctypes.data,
        **shared,
    )
    return rows.attended
