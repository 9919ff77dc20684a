"""What mutants of golden models are compared by."""

import numpy as np
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.loading.load_runner import load_runner
from engine.weights.files.weights_file import WeightsFile
from tests.engine.runners import feed

TOKENS = 20  # more than the window of gemma3's golden


def logits_of(file: WeightsFile) -> NDArray[np.float32]:
    options = EngineConfig(threads=1, lanes=1, max_rows=TOKENS, max_logit_rows=TOKENS, kv_memory="16MiB")
    runner = load_runner(file, options, lambda stage, done: None).runner
    try:
        return feed(runner, [7 * token % runner.vocab_size for token in range(TOKENS)], [0], chunk=TOKENS)
    finally:
        runner.close()
