"""Block tables for a run without the engine's memory: sequences share nothing, and keep their blocks."""

from engine.run.runner_protocol import ModelRunner


def plain_tables(runner: ModelRunner, tokens: int, *, sequence: int = 0, sequences: int = 1) -> tuple[list[int], ...]:
    """The tables of one of `sequences` sequences of up to `tokens` tokens, which divide each group's blocks evenly.

    A group with a window has fewer blocks than a long sequence; they are used in turn, since old ones are never read.
    """
    tables = []
    for group in runner.groups:
        share = group.n_blocks // sequences
        tables.append([sequence * share + index % share for index in range(-(-tokens // runner.block_tokens))])
    return tuple(tables)
