"""What a model family gives to a load: its config, its kernels, and the program of one forward pass."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.families.checks import Keys, Shapes
from engine.families.emit.attention_state import KvLayers
from engine.families.emit.run_state import Capacity, RunState
from engine.weights.files.weights_file import WeightBytes, WeightsFile
from engine.weights.load import WeightLoader
from kernels.attention.kv_cache import KvType
from kernels.build.jit import Kernel
from kernels.run.program import Program

# Writes the embeddings of token ids to float32 [tokens, hidden].
Embed = Callable[[list[int], NDArray[np.float32]], None]


class FamilyConfig(Protocol):
    """What every blueprint tells about the model, whatever its family."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def context_length(self) -> int:
        """Tokens that the model was made for."""

    def kv_layers(self, kv_type: KvType) -> tuple[KvLayers, ...]:
        """The groups of attention layers that share block tables, in the order of these tables."""

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent state; 0 where the model has none."""


class Draft(NamedTuple):
    """What predicts the token after the next."""

    program: Program
    state: RunState  # with step inputs and blocks of the trunk's
    tokens: NDArray[np.float32]  # [max_rows, hidden]: takes the embeddings of the tokens after
    before: NDArray[np.float32]  # [max_rows, hidden]: takes the final states of the rows' own positions


class Built(NamedTuple):
    """A model in memory, once the loader's `finish` has returned."""

    program: Program
    state: RunState
    embed: Embed
    draft: Draft | None = None
    step_bytes: WeightBytes | None = None  # that a step of `program` reads; None: all that was loaded


C = TypeVar("C", bound=FamilyConfig)


def _as_it_is(file: WeightsFile) -> WeightsFile:
    return file


def _no_kernels(config: FamilyConfig, tier: int) -> Sequence[Kernel]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[C]):
    """One architecture: all that this version knows of it."""

    keys: Keys  # of its metadata, and what each means
    read_config: Callable[[WeightsFile], C]  # raises ModelFileError or UnsupportedModelError
    # The tensors that a model of this shape must have, of those names that its file holds.
    tensors: Callable[[C, Collection[str]], Shapes]
    build: Callable[[C, WeightLoader, Capacity, int], Built]  # the int is the tier's number
    # The kernels that this family needs beyond those that all models need; the int is the tier's number.
    own_kernels: Callable[[C, int], Sequence[Kernel]] = _no_kernels
    # The file with the tensors that `build` asks for; raises ModelFileError.
    view: Callable[[WeightsFile], WeightsFile] = _as_it_is
    has_towers: bool = False  # files may hold towers of other senses, which are left out
