"""The front door: finds the application's tree, puts it first on this process's path, and runs the command line.

In a checkout (and an editable install) the tree is the folder of this file; an installed wheel carries it inside
`octavo_app/`, so that the plain names `server`, `engine`, `kernels` and `clients` never meet those of other projects.
"""

import gc
import os
import sys
from pathlib import Path


def application_tree() -> Path:
    """The folder that holds server/, engine/, kernels/ and clients/ of this very file."""
    here = Path(__file__).resolve().parent
    installed = here / "octavo_app"
    return installed if installed.is_dir() else here


def main() -> None:
    """Run the command line; the exit code says how it went."""
    sys.path.insert(0, str(application_tree()))
    # NumPy's library of matrices starts a thread for each of the machine's cores, whatever a container is allowed; we
    # compute with threads of our own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Importing makes hundreds of thousands of objects and hardly any garbage; looking for it takes a fifth of a start.
    gc.disable()
    from server.cli.main import main as run_command_line

    gc.freeze()  # what is imported stays, and need not be looked at again
    gc.enable()
    sys.exit(run_command_line())


if __name__ == "__main__":
    main()
