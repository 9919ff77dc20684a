"""Run as a program: `octavo serve` with a scripted model, for tests of its process."""

import sys
import time

from engine.errors import OctavoError
from server.cli.run_server import run_server
from server.serving import Progress
from server.settings import Settings
from tests.server.scripted.engine import LoadFailure, ScriptedModel, scripted_model


def load(progress: Progress) -> ScriptedModel:
    progress("Loading", 0.5)
    match sys.argv[2]:
        case "slow":
            time.sleep(60)
        case "fail":
            raise LoadFailure("The file is broken; get another.")
        case "long":
            return scripted_model(*[step for _ in range(100) for step in ("x", 0.02)])
        case "fast":
            return scripted_model(*[step for _ in range(2000) for step in ("word ", 0.0)])
        case "endless":
            return scripted_model(*[step for _ in range(100_000) for step in ("x", 0.1)])
    return scripted_model("Hello")


def main() -> int:
    try:
        run_server(Settings.read({"port": int(sys.argv[1]), "drain_timeout": float(sys.argv[3])}), load)
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
