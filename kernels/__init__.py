"""Compiled arithmetic: SIMD kernels, the op-record program and the worker team; knows arrays, nothing of sequences."""
