"""The draft head of a model, a block behind its last layer: in the model's own file, in a file beside it, or left out.

A file of its own (`mtp-*.gguf`) has the metadata of the whole model and the tensors of the draft block; what else it
holds, as embeddings, the model has too.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from engine.errors import ModelError, ModelFileError
from engine.weights.files.file_view import FileView
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.open_weights import MergedFiles, is_later_part, open_weights

# A draft head fits a model where these are equal, as far as both files tell them.
_DIMENSIONS = (
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "feed_forward_length",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
)
_BLOCK = re.compile(r"blk\.(\d{1,5})\.", re.ASCII)
logger = logging.getLogger(__name__)


def open_trunk(path: Path) -> WeightsFile:
    """Open a model without its draft head. Raises what `open_weights` does."""
    with ExitStack() as opened:
        file = without_draft(opened.enter_context(open_weights(path)))
        opened.pop_all()
    return file


def open_drafting(path: Path, draft: Path | None = None) -> WeightsFile:
    """Open a model with its draft head: that of the file `draft`, its own, or that of the only fitting file beside it.

    Without any, the model alone. Raises what `open_weights` does, and ModelFileError where `draft` is none of its.
    """
    with ExitStack() as opened:
        file = opened.enter_context(open_weights(path))
        if draft is not None:
            file = with_draft(file, draft)
        elif not _has_draft(file):
            file = _with_draft_beside(without_draft(file))
        opened.pop_all()
    return file


def without_draft(file: WeightsFile) -> WeightsFile:
    """The model as if it had no draft head."""
    trunk = _trunk_blocks(file)
    if trunk == _blocks(file):
        return file
    tensors = {name: info for name, info in file.tensors.items() if _block_of(name) < trunk}
    return FileView(file, metadata=_counting(file, trunk, 0), tensors=tensors)


def with_draft(file: WeightsFile, path: Path) -> WeightsFile:
    """The model with the draft head of another file; closing it closes both. Raises as `open_drafting` does."""
    if _has_draft(file):
        raise ModelFileError(f"{file.path} has a draft head of its own; leave out {path}.")
    with ExitStack() as opened:
        draft = opened.enter_context(open_weights(path))
        _check_fit(file, draft)
        joined = _Joined(without_draft(file), draft)
        opened.pop_all()
    return joined


class _Joined(FileView):
    """A model and its draft head, whose block alone is taken from its file."""

    def __init__(self, trunk: WeightsFile, draft: WeightsFile) -> None:
        self._first_block, self._draft_path = _blocks(trunk), draft.path
        own = {name: info for name, info in draft.tensors.items() if self._is_drafting(name)}
        metadata = _counting(trunk, _blocks(draft), _draft_blocks(draft))
        super().__init__(MergedFiles((trunk, FileView(draft, tensors=own))), metadata=metadata)

    def path_of(self, name: str) -> Path:
        return self._draft_path if self._is_drafting(name) else super().path_of(name)

    def _is_drafting(self, name: str) -> bool:
        return _block_of(name) >= self._first_block


def _with_draft_beside(file: WeightsFile) -> WeightsFile:
    """The model with the only draft head that lies beside it and fits; the model alone where none or several do."""
    folder = file.path if file.path.is_dir() else file.path.parent
    fitting: list[Path] = []
    for path in sorted(folder.glob("mtp-*.gguf")):
        if path == file.path or is_later_part(path):
            continue
        try:
            with open_weights(path) as draft:
                _check_fit(file, draft)
        except ModelError as error:
            logger.info("a file beside the model is not used: %s", error)
        else:
            fitting.append(path)
    if len(fitting) > 1:
        names = ", ".join(path.name for path in fitting)
        logger.warning("%s hold a draft head of this model each; none is used: choose one with --mtp", names)
    return with_draft(file, fitting[0]) if len(fitting) == 1 else file


def _check_fit(file: WeightsFile, draft: WeightsFile) -> None:
    """Raise ModelFileError, or what the draft's metadata raise, where it is no draft head of the model."""
    if draft.architecture != file.architecture:
        raise ModelFileError(
            f"{draft.path} is of the architecture {draft.architecture!r} and {file.path} of {file.architecture!r};"
            " give the draft head that was made for the model."
        )
    blocks, drafts, trunk = _blocks(draft), _draft_blocks(draft), _trunk_blocks(file)
    if not _has_draft(draft):
        raise ModelFileError(f"{draft.path} holds no draft head; give the file whose name begins with mtp-.")
    if blocks - drafts != trunk:
        raise _misfit(file, draft, "layers of the model", blocks - drafts, trunk)
    for key in _DIMENSIONS:
        name = f"{file.architecture}.{key}"
        theirs, ours = draft.metadata.get(name), file.metadata.get(name)
        if isinstance(theirs, int) and isinstance(ours, int) and theirs != ours:
            raise _misfit(file, draft, key, theirs, ours)
    theirs, ours = _vocabulary(draft), _vocabulary(file)
    if theirs is not None and theirs != ours:
        raise _misfit(file, draft, "tokens", theirs, ours)


def _misfit(file: WeightsFile, draft: WeightsFile, what: str, theirs: object, ours: object) -> ModelFileError:
    return ModelFileError(
        f"{draft.path} does not belong to {file.path}: it has {theirs} for {what}, and the model {ours};"
        " give the draft head that was made for the model."
    )


def _has_draft(file: WeightsFile) -> bool:
    trunk = _trunk_blocks(file)
    return trunk < _blocks(file) and any(_block_of(name) >= trunk for name in file.tensors)


def _counting(file: WeightsFile, blocks: int, drafts: int) -> Mapping[str, MetadataValue]:
    """The file's metadata with so many blocks, of which so many draft."""
    name = file.architecture
    metadata = {**file.metadata, f"{name}.block_count": blocks}
    metadata.pop(f"{name}.nextn_predict_layers", None)
    return metadata | {f"{name}.nextn_predict_layers": drafts} if drafts else metadata


def _blocks(file: WeightsFile) -> int:
    return Metadata(file.metadata, file.path).integer(f"{file.architecture}.block_count", 0)


def _draft_blocks(file: WeightsFile) -> int:
    return Metadata(file.metadata, file.path).integer(f"{file.architecture}.nextn_predict_layers", 0)


def _trunk_blocks(file: WeightsFile) -> int:
    """Blocks that are no draft's: all where the metadata contradict themselves, which the family refuses."""
    blocks, drafts = _blocks(file), _draft_blocks(file)
    return blocks - drafts if drafts < blocks else blocks


def _block_of(name: str) -> int:
    """The number of the block that a tensor is of; -1 for none."""
    block = _BLOCK.match(name)
    return -1 if block is None else int(block[1])


def _vocabulary(file: WeightsFile) -> int | None:
    """How many tokens the model has, as far as the file tells."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None:
        return embedding.shape[0]
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else None
