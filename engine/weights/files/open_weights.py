"""Opens a model of any format that this version reads, by what its path is."""

from pathlib import Path

from engine.errors import ModelFileError
from engine.weights.files.gguf import GgufFile
from engine.weights.files.split import open_split, parts_of
from engine.weights.files.weights_file import WeightsFile


def open_weights(path: Path) -> WeightsFile:
    """Open a GGUF file, all parts of a split one, or a folder of safetensors.

    Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever is there.
    """
    if path.is_dir():
        # Imported late: half of all that reads weights is for folders.
        from engine.weights.files.safetensors_folder import SafetensorsFolder

        return SafetensorsFolder(path)
    file = GgufFile.open(path)
    try:
        count = parts_of(file)
    except ModelFileError:
        file.close()
        raise
    if count <= 1:
        return file
    file.close()
    return open_split(path, count)
