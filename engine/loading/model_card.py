"""What a model file says of the work that it will be: bytes that steps read, and bytes that sequences hold."""

import math
import re
from collections import Counter
from dataclasses import dataclass

from engine.families.registry import read_blueprint
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightBytes, WeightsFile
from kernels.attention.kv_cache import KvType

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCard:
    """What attention layers of one kind hold."""

    layers: int
    window: int  # positions that a row sees; 0: all
    bytes_per_token: int  # in all these layers, of each position that is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The facts that `octavo show` tells."""

    name: str
    family: str
    layers: int
    draft_layers: int  # that only speculation runs
    parameters: int
    file_bytes: int
    context_length: int
    vocabulary: int
    experts: int  # a layer; 0: no mixture
    active_experts: int
    types: dict[str, int]  # bytes of tensors by type, the most first
    weights: WeightBytes  # of the trunk
    draft_bytes: int  # that a guess of the draft head reads, beside the head
    kv: tuple[KvCard, ...]
    state_bytes: int  # of a sequence, in recurrent layers
    warnings: tuple[str, ...]  # a line for each thing in the file that changes nothing here


def read_model_card(file: WeightsFile, name: str, kv_type: KvType) -> ModelCard:
    """Read the metadata and the list of tensors, no weights. Raises ModelFileError or UnsupportedModelError."""
    blueprint = read_blueprint(file)
    config = blueprint.config
    metadata, prefix = Metadata(file.metadata, file.path), file.architecture
    layers = metadata.integer(f"{prefix}.block_count", minimum=1)
    drafts = metadata.integer(f"{prefix}.nextn_predict_layers", 0, maximum=layers)
    types: Counter[str] = Counter()
    for tensor in file.tensors.values():
        types[tensor.type] += tensor.nbytes
    return ModelCard(
        name=name,
        family=prefix,
        layers=layers - drafts,
        draft_layers=drafts,
        parameters=sum(math.prod(tensor.shape) for tensor in file.tensors.values()),
        file_bytes=file.nbytes,
        context_length=config.context_length,
        vocabulary=config.vocabulary,
        experts=metadata.integer(f"{prefix}.expert_count", 0),
        active_experts=metadata.integer(f"{prefix}.expert_used_count", 0),
        types=dict(types.most_common()),
        weights=_weights(file, metadata, range(layers - drafts)),
        draft_bytes=round(_weights(file, metadata, range(layers - drafts, layers)).of_step(1)),
        kv=tuple(
            KvCard(
                layers=group.layers,
                window=group.window,
                bytes_per_token=group.block_bytes // group.block_positions,
            )
            for group in config.kv_layers(kv_type)
        ),
        state_bytes=config.state_bytes,
        warnings=blueprint.warnings,
    )


def _weights(file: WeightsFile, metadata: Metadata, layers: range) -> WeightBytes:
    """Bytes in the file of what a step through some layers reads, and from the first on what is no layer's.

    Not an embedding that is only looked up.
    """
    dense = experts = 0
    for tensor in file.tensors.values():
        block = _BLOCK.match(tensor.name)
        if (block is None and 0 not in layers) or (block is not None and int(block[1]) not in layers):
            continue
        if tensor.name == EMBEDDING and HEAD in file.tensors:
            continue
        if "_exps." in tensor.name:
            experts += tensor.nbytes
        else:
            dense += tensor.nbytes
    count = metadata.integer(f"{file.architecture}.expert_count", 0)
    active = metadata.integer(f"{file.architecture}.expert_used_count", 0, maximum=max(count, 0))
    return WeightBytes(dense, experts, max(count, 1), active)
