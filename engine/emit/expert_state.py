"""The scratch of mixtures of experts: what their ops hand to each other, allocated once for all layers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.emit.run_state import Capacity
from engine.families.mixture import Mixture
from kernels.matmul.activations import Activations
from kernels.matmul.moe_routing import Routing
from kernels.run.program import OP_BYTES


@dataclass(slots=True, kw_only=True)
class ExpertState:
    """Places are the pairs of a row and one of its experts, sorted by expert; there are rows * active of them."""

    routing: Routing
    packed: Activations  # of places: the input of gate and up, then that of down
    gate_up: NDArray[np.float32]  # [places, 2 * width], gate's values first
    down: NDArray[np.float32]  # [places, hidden]
    records: NDArray[np.uint8]  # [threads, OP_BYTES], as EXPERT_MATMUL asks for

    @classmethod
    def allocate(cls, mixture: Mixture, capacity: Capacity, hidden: int) -> "ExpertState":
        """Make room for steps of the rows that there can be; pages that no step touches cost no memory."""
        rows = capacity.max_rows
        places = rows * mixture.active
        return cls(
            routing=Routing.allocate(rows, mixture.experts, mixture.active),
            packed=Activations.allocate(places, max(hidden, mixture.width), capacity.crossover),
            gate_up=np.zeros((places, 2 * mixture.width), np.float32),
            down=np.zeros((places, hidden), np.float32),
            records=np.zeros((capacity.threads, OP_BYTES), np.uint8),
        )
