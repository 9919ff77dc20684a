"""Weights of float types made smaller as they are loaded or written."""
