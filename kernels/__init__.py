"""Compiled arithmetic: SIMD kernels, the op-record program and the worker team; knows arrays, nothing of sequences.

A folder imports those before it, and none behind it:

    machine    what the processor, the system and the control groups give
    build      from a Python function to machine code that is kept on disk
    simd       vectors, and the tiers of instruction sets
    run        programs, the threads that run them, and what these can do at most
    sampling   ops on logits
    quant      weight types, and the arithmetic of their blocks
    matmul     matmuls, norms, gated layers, mixtures of experts
    attention  attention over blocks of keys and values
    delta      the recurrence of Gated DeltaNet
"""
