"""Octavo's version: part of every answer's fingerprint, since another version may give other bits."""

VERSION = "0.1.0"
