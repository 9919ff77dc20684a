"""The shape of a qwen35, qwen35moe or qwen3next model, read from metadata and checked before it is built."""

import dataclasses
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.family import KvLayers
from engine.families.mixture import Mixture, read_mixture
from engine.families.transformer_config import TransformerConfig, read_transformer_config
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from kernels.delta.recurrent import TAPS, DeltaShape

_INTERVAL = 4  # every fourth layer is attention
_GROUPED = "qwen3next"  # the architecture that has V heads by their K head


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen35Config(TransformerConfig):
    """Blueprint of a model of Gated DeltaNet and gated attention; `layers` are those of the trunk."""

    mixture: Mixture | None  # None: feed-forward layers are dense
    delta: DeltaShape
    recurrent: tuple[bool, ...]  # of each layer: whether it is Gated DeltaNet
    is_tiled: bool  # how V heads share K heads: as LAYER has it
    draft_layers: int  # 1: the file has a block that predicts the token after the next

    @property
    def kv_layers(self) -> tuple[KvLayers, ...]:
        """One group: the draft's attention layer shares the tables of the trunk's."""
        return (KvLayers(0, self.recurrent.count(False) + self.draft_layers, self.kv_heads, self.head_dim),)

    @property
    def state_bytes(self) -> int:
        return self.recurrent.count(True) * self.delta.slot_floats * 4


def read_qwen35_config(file: WeightsFile) -> Qwen35Config:
    """Read and check the keys of the file's architecture; raises as `read_transformer_config` does."""
    base, metadata, name = read_transformer_config(file), Metadata(file.metadata, file.path), file.architecture
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    mixture = read_mixture(metadata, name) if metadata.integer(f"{name}.expert_count", 0) else None
    if mixture is not None:
        shared["ffn"] = metadata.layer_integer(f"{name}.expert_shared_feed_forward_length", minimum=1)
    blocks, drafts = base.layers, metadata.integer(f"{name}.nextn_predict_layers", 0)
    if drafts > 1:
        raise UnsupportedModelError(f"{file.path} has {drafts} draft layers; this version runs one.")
    if drafts >= blocks:
        raise ModelFileError(f"{file.path} is broken: all of its {blocks} blocks are draft layers.")
    shared["layers"] = blocks - drafts
    return Qwen35Config(
        **shared,
        mixture=mixture,
        delta=read_delta_shape(file),
        recurrent=_recurrent(metadata, name, blocks - drafts),
        is_tiled=name != _GROUPED,
        draft_layers=drafts,
    )


def read_delta_shape(file: WeightsFile) -> DeltaShape:
    """Read and check the heads of Gated DeltaNet."""
    metadata, path, name = Metadata(file.metadata, file.path), file.path, file.architecture
    dim = metadata.integer(f"{name}.ssm.state_size", minimum=1)
    inner = metadata.integer(f"{name}.ssm.inner_size", minimum=1)
    shape = DeltaShape(
        key_heads=metadata.integer(f"{name}.ssm.group_count", minimum=1),
        value_heads=metadata.integer(f"{name}.ssm.time_step_rank", minimum=1),
        key_dim=dim,
        value_dim=dim,
    )
    if shape.value_heads % shape.key_heads or inner != shape.value_heads * dim:
        raise ModelFileError(
            f"{path} is broken: its recurrent layers have {shape.value_heads} V heads of {dim} values,"
            f" {shape.key_heads} K heads and {inner} values in all, which contradict each other."
        )
    if dim % 16:
        raise UnsupportedModelError(f"{path} has recurrent heads of {dim} values; this version needs a multiple of 16.")
    taps = metadata.integer(f"{name}.ssm.conv_kernel", minimum=1)
    if taps != TAPS:
        raise UnsupportedModelError(f"{path} has convolutions of {taps} taps; this version runs those of {TAPS}.")
    return shape


def _recurrent(metadata: Metadata, name: str, layers: int) -> tuple[bool, ...]:
    """Which layers are recurrent: the file may name each, or an interval at which the others stand."""
    interval = metadata.integer(f"{name}.full_attention_interval", _INTERVAL, minimum=1)
    recurrent = tuple((layer + 1) % interval != 0 for layer in range(layers))
    named = metadata.flags(f"{name}.attention.recurrent_layers", layers)
    if named is not None and f"{name}.full_attention_interval" in metadata and named != recurrent:
        raise ModelFileError(f"{metadata.path} is broken: it names its recurrent layers twice, and differently.")
    recurrent = named or recurrent
    if all(recurrent) or not any(recurrent):
        raise UnsupportedModelError(
            f"{metadata.path} has layers of one kind only; this version runs {name} models of both kinds."
        )
    return recurrent
