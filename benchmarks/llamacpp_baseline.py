"""Drives llama.cpp through its low-level batch interface; runs in the environment that build_llamacpp.sh makes.

    python llamacpp_baseline.py bench    MODEL.gguf --batch 1,8 --prompt 512 --flash 0     JSON lines, as `octavo bench`
    python llamacpp_baseline.py logits   MODEL.gguf --ids IDS.json --out LOGITS.npy         float32 [tokens, vocabulary]
    python llamacpp_baseline.py quantize MODEL.gguf --type Q4_K --out QUANTIZED.gguf        every matrix in that type

No sampling, and an argmax over the logits after each step: the fairest figure that llama.cpp can give.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence

import llama_cpp
import numpy as np
from numpy.typing import NDArray

_WARM_UP_STEPS = 4
_CHUNK = 512
_ERROR_LEVEL = 4  # GGML_LOG_LEVEL_ERROR of ggml.h
# The file type whose plain matrices are all of the type named; `pure` keeps llama.cpp from mixing others in.
_FILE_TYPES = {name: name for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q6_K", "IQ4_NL", "IQ4_XS")}
_FILE_TYPES |= {name: f"{name}_S" for name in ("Q3_K", "Q4_K", "Q5_K")}
Row = tuple[int, int, int]  # token, position, sequence


class Context:
    """One model and one context of llama.cpp; `arguments` may name the most rows of a step as n_batch."""

    def __init__(self, arguments: argparse.Namespace, *, sequences: int, tokens: int) -> None:
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            arguments.model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {arguments.model}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = tokens, sequences
        rows = getattr(arguments, "n_batch", _CHUNK)
        parameters.n_batch, parameters.n_ubatch = rows, _CHUNK
        parameters.n_threads = parameters.n_threads_batch = arguments.threads
        parameters.flash_attn_type = arguments.flash
        parameters.kv_unified = True
        parameters.type_k = parameters.type_v = getattr(llama_cpp, f"GGML_TYPE_{arguments.kv.upper()}")
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot make a context of {tokens} tokens")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self._batch = llama_cpp.llama_batch_init(rows, 0, 1)

    def clear(self) -> None:
        """Forget all sequences."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def run(self, rows: Sequence[Row], wanted: Sequence[bool]) -> None:
        """Run one step of up to 512 rows, or n_batch; `wanted` says which rows' logits are computed."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, ((token, position, sequence), wants) in enumerate(zip(rows, wanted, strict=True)):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = int(wants)
        code = llama_cpp.llama_decode(self.context, batch)
        if code != 0:
            raise SystemExit(f"llama_decode returned {code}")

    def logits(self, row: int) -> NDArray[np.float32]:
        """The logits of a row of the last step, valid until the next."""
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, row), (self.vocabulary,))


def bench(arguments: argparse.Namespace) -> None:
    """Print a line for the prefill and for each batch size."""
    sizes = [int(size) for size in arguments.batch.split(",")]
    tokens = max(arguments.prompt, (arguments.ctx0 + arguments.gen) * max(sizes)) + 8
    context = Context(arguments, sequences=max(sizes), tokens=tokens)
    common = {
        "engine": "llama.cpp",
        "version": llama_cpp.__version__,
        "threads": arguments.threads,
        "flash": arguments.flash,
        "system": llama_cpp.llama_print_system_info().decode(),
    }
    for line in _measurements(context, arguments, sizes):
        print(json.dumps(common | line), flush=True)


def _measurements(context: Context, arguments: argparse.Namespace, sizes: list[int]) -> Iterator[dict[str, object]]:
    tokens = np.random.default_rng(1).integers(0, context.vocabulary, 100_000).tolist()
    yield _prefill(context, arguments.prompt, arguments.reps, tokens)
    for batch in sizes:
        yield _decode(context, batch, arguments.ctx0, arguments.gen, tokens)


def _prefill(context: Context, prompt: int, repeats: int, tokens: list[int]) -> dict[str, object]:
    seconds = []
    for _ in range(repeats + 1):
        context.clear()
        begin = time.perf_counter()
        _feed(context, tokens[:prompt], sequence=0)
        context.logits(-1).argmax()
        seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds[1:]))
    return {"what": "prefill", "n": prompt, "tok_s": prompt / median, "best": prompt / min(seconds[1:])}


def _decode(context: Context, batch: int, ctx0: int, steps: int, tokens: list[int]) -> dict[str, object]:
    context.clear()
    for sequence in range(batch):
        _feed(context, tokens[sequence * 97 :][:ctx0], sequence)
    seconds = []
    for step in range(steps):
        rows = [(tokens[5000 + step * batch + sequence], ctx0 + step, sequence) for sequence in range(batch)]
        begin = time.perf_counter()
        context.run(rows, [True] * batch)
        for row in range(batch):
            context.logits(row).argmax()
        seconds.append(time.perf_counter() - begin)
    timed = seconds[_WARM_UP_STEPS:] or seconds
    median = float(np.median(timed))
    return {
        "what": "decode",
        "B": batch,
        "ctx0": ctx0,
        "ms_step": median * 1e3,
        "tok_s": batch / median,
        "best": batch / min(timed),
    }


def _feed(context: Context, tokens: Sequence[int], sequence: int) -> None:
    """Prefill a sequence; only its last token's logits are computed."""
    for start in range(0, len(tokens), _CHUNK):
        part = tokens[start : start + _CHUNK]
        rows = [(token, start + index, sequence) for index, token in enumerate(part)]
        context.run(rows, [start + index == len(tokens) - 1 for index in range(len(part))])


def logits(arguments: argparse.Namespace) -> None:
    """Write the logits after each of the tokens."""
    with open(arguments.ids) as file:
        ids = json.load(file)
    context = Context(arguments, sequences=1, tokens=len(ids) + 8)
    found = np.zeros((len(ids), context.vocabulary), np.float32)
    for start in range(0, len(ids), _CHUNK):
        rows = [(token, start + index, 0) for index, token in enumerate(ids[start : start + _CHUNK])]
        context.run(rows, [True] * len(rows))
        for index in range(len(rows)):
            found[start + index] = context.logits(index)
    np.save(arguments.out, found)


def quantize(arguments: argparse.Namespace) -> None:
    """Write the model with every matrix in one type."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{_FILE_TYPES[arguments.type]}")
    ggml_type = getattr(llama_cpp, f"GGML_TYPE_{arguments.type}")
    parameters.output_tensor_type = parameters.token_embedding_type = ggml_type
    parameters.pure, parameters.nthread = True, arguments.threads
    code = llama_cpp.llama_model_quantize(arguments.model.encode(), arguments.out.encode(), parameters)
    if code != 0:
        raise SystemExit(f"llama_model_quantize returned {code}")


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def show_errors(level: int, text: bytes, data: object) -> None:
    """Print what llama.cpp says of errors, and nothing else that it says."""
    if level == _ERROR_LEVEL:
        print(text.decode(errors="replace"), end="", file=sys.stderr)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (bench, logits, quantize):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.set_defaults(run=command)
        sub.add_argument("model")
        sub.add_argument("--threads", type=int, default=2)
        if command is quantize:
            sub.add_argument("--type", choices=sorted(_FILE_TYPES), required=True)
        else:
            sub.add_argument("--flash", type=int, choices=(0, 1), default=0)
            sub.add_argument("--kv", choices=("f16", "f32"), default="f16")
        if command is bench:
            sub.add_argument("--batch", default="1,8")
            for name, default in (("prompt", 512), ("gen", 64), ("ctx0", 64), ("reps", 3)):
                sub.add_argument(f"--{name}", type=int, default=default)
        else:
            sub.add_argument("--out", required=True)
        if command is logits:
            sub.add_argument("--ids", required=True, help="a JSON list of token ids")
    arguments = parser.parse_args()
    llama_cpp.llama_log_set(show_errors, None)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
