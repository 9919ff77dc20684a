"""The likeliest token of each row of logits: an op behind the head, where these still lie in the cache.

Bytes read: 4 a logit. Which token that is, is kernels/sampling.argmax's to say.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel
from kernels.run.program import array_at, claim_task, op_record, record_at
from kernels.sampling.sampling import largest_of
from kernels.simd.vectors import load_i64

LIKELIEST = op_record(
    logits="u8",  # float32 [rows, stride]
    stride="i8",
    vocabulary="i8",
    rows="u8",  # address of the row count, int64
    tokens="u8",  # int64 [rows]: the lowest id of the largest logit; -1 if no logit is above -inf
)


@kernel(KERNEL_SIGNATURE)
def likeliest_kernel() -> Any:
    """Compile the op; a task is one row."""

    def likeliest_op(op, thread, threads):
        likeliest = record_at(op, LIKELIEST)
        rows = load_i64(np.uintp(likeliest.rows))
        tokens = array_at(np.uintp(likeliest.tokens), rows, np.int64)
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            logits = np.uintp(likeliest.logits) + np.uintp(row * likeliest.stride * 4)
            tokens[row] = largest_of(logits, likeliest.vocabulary)

    return likeliest_op
