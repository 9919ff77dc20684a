"""Reads a chat template that stands in a file of its own."""

from pathlib import Path

from engine.errors import ModelFileError, ModelNotFoundError
from engine.sandbox.template_process import shared_process

MAX_TEMPLATE_BYTES = 1 << 20


def read_template(path: Path) -> str:
    """The text in the file. Raises ModelNotFoundError or ModelFileError."""
    try:
        with path.open("rb") as file:  # a pipe will do, whose size nobody knows before
            content = file.read(MAX_TEMPLATE_BYTES + 1)
        text = content.decode()
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no chat template {path}; check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a null byte in the path
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"The chat template {path} cannot be read: {reason}; use another file.") from error
    if len(content) > MAX_TEMPLATE_BYTES:
        raise ModelFileError(f"The chat template {path} has more than {MAX_TEMPLATE_BYTES} bytes; use another file.")
    return text


def given_template(path: Path) -> str:
    """The text of a template that the operator gives, which compiles and says something. Raises ModelError."""
    source = read_template(path)
    if not source.strip():
        raise ModelFileError(f"The chat template {path} is empty; use another file.")
    shared_process().compile(source, f"The chat template {path}")
    return source
