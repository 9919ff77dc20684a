"""A process that compiles kernels into the store, and ends with the queue of them: see compile_processes.py."""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Read from stdin what is to be compiled, and where to."""
    import numba  # noqa: F401, before kernels/: that makes them compile here

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from kernels.build import code_store
    from kernels.build.jit import find

    request = json.load(sys.stdin)
    code_store.use(Path(request["store"]))
    while number := os.read(request["queue"], 1):
        for module, name, arguments in request["groups"][number[0]]:
            kernel = find(module, name, arguments)
            if not kernel.is_compiled:
                kernel.compile()
        if request["tell"] is not None:
            os.write(request["tell"], number)


if __name__ == "__main__":
    main()
