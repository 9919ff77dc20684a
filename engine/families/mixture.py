"""The shape of mixtures of experts, read from metadata and checked before anything is built from it."""

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """All mixtures of a model are of one shape. Scores of experts are the softmax of the router's logits."""

    experts: int
    active: int  # experts that a row goes to
    width: int  # outputs of an expert's gate and up
    shared_width: int = 0  # of the expert that all rows go to; 0: there is none
    renormalize: bool = True  # a row's weights are divided by their sum
    scale: float = 1.0  # of the weights


def read_mixture(metadata: Metadata, architecture: str) -> Mixture:
    """Read and check the `expert_*` keys of an architecture.

    Raises ModelFileError where they contradict each other, UnsupportedModelError for what kernels cannot do.
    """
    experts = metadata.integer(f"{architecture}.expert_count", minimum=1, maximum=1 << 16)
    mixture = Mixture(
        experts=experts,
        active=metadata.integer(f"{architecture}.expert_used_count", minimum=1, maximum=experts),
        width=metadata.layer_integer(f"{architecture}.expert_feed_forward_length", minimum=1),
        shared_width=metadata.layer_integer(f"{architecture}.expert_shared_feed_forward_length", 0),
        renormalize=metadata.flag(f"{architecture}.expert_weights_norm", True),
        scale=_scale(metadata, f"{architecture}.expert_weights_scale"),
    )
    if mixture.width % 16 or mixture.shared_width % 16:
        raise UnsupportedModelError(
            f"{metadata.path} has experts of {mixture.width} and shared ones of {mixture.shared_width} values;"
            " this version needs multiples of 16."
        )
    return mixture


def _scale(metadata: Metadata, key: str) -> float:
    """Of the experts' weights; 0 says, as in llama.cpp, that there is none."""
    return 1.0 if metadata.number(key, 1.0) == 0 else metadata.positive(key, 1.0, maximum=1e6)
