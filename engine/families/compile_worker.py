"""A process that helps to compile kernels into the cache on disk, and ends with the queue of them: see compile.py."""

import pickle
import sys
from pathlib import Path


def main() -> None:
    """Its argument is the queue's file descriptor; the groups come from its owner, pickled, on stdin."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from engine.families.compile import compile_from

    for _ in compile_from(int(sys.argv[1]), pickle.load(sys.stdin.buffer)):
        pass


if __name__ == "__main__":
    main()
