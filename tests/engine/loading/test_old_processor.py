"""A processor without AVX2, FMA and F16C, as small machines of today have, gives the bits of all others."""

import os
import subprocess
import sys
from pathlib import Path

from tests.engine.loading.old_processor import TARGET, logit_bits
from tests.tiny.models import write_tiny_llama

ROOT = Path(__file__).resolve().parents[3]


def test_the_bits_are_those_of_this_processor(tmp_path: Path) -> None:
    """LLVM would call a library function for half precision that is not there, and end the process."""
    path = write_tiny_llama(tmp_path / "tiny.gguf", types={"attn_q": "F16", "ffn_up": "Q8_0"}, layers=1)
    command = [sys.executable, "-m", "tests.engine.loading.old_processor", str(path)]
    target = TARGET | {"PYTHONPATH": str(ROOT), "OCTAVO_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | target, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == logit_bits(path)
