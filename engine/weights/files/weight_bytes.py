"""How many bytes of weights a step reads: what bounds the speed of decoding."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Packed bytes of a model's matrices. Embeddings that are only looked up do not count."""

    dense: int  # read by every step
    experts: int = 0  # of all experts of all layers
    expert_count: int = 1  # of a layer
    active: int = 0  # experts that a row goes to

    def of_step(self, rows: int) -> float:
        """Expected bytes that a step of `rows` rows reads, where rows choose their experts evenly and independently.

        Of N experts with k active, rows touch N * (1 - (1 - k / N)**rows); rows that are alike touch fewer.
        """
        touched = 1 - (1 - self.active / self.expert_count) ** rows
        return self.dense + self.experts * touched
