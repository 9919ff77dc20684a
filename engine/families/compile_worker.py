"""A process that compiles the kernels all models share into the cache on disk, and ends: see compile.py."""

import sys
from pathlib import Path


def main() -> None:
    """Arguments: the type of keys and values, the tier (both as numbers), and the vocabulary's size."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from engine.families.compile import shared_tasks

    kv_type, tier, vocabulary = map(int, sys.argv[1:])
    for task in shared_tasks(kv_type, tier, vocabulary):
        task()


if __name__ == "__main__":
    main()
