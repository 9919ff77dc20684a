"""Writes the prefix cache to a file and reads it back; a record is believed only if its size and checksum are right.

The file: MAGIC, then the frames of a JSON header and of one record a node, parents first. A frame is the length of its
content (u64), the blake2b of the content, and the content. A record: which record is its parent's (u64, or FIRST of a
chain), which groups' blocks it has (u64, a bit each), whether it has a state and whether it was shared (u64, a bit
each), the digest of its parent, its age (when it was used, f64; in each queue of those that may be evicted its rank,
f64, and number, i64, -1 if it is not in), its tokens (i64 each), the blocks, the state. Chains begin with the digest of
their caller and salt, so that a file gives one caller's text to no other.
"""

import hashlib
import json
import logging
import math
import os
import stat
import struct
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.memory.prefix_cache import Age, PrefixCache
from engine.run.nodes import DIGEST_BYTES, NO_SLOT, Node
from engine.run.runner_protocol import NO_BLOCK, ModelRunner

logger = logging.getLogger(__name__)

MAGIC = b"OCTAVOK2"
FOLDER = "octavo-prefixes"  # in the folder that the user named, which may hold other things and be open to others
LIMIT_BYTES = 4 << 30  # of a file
KEPT_FILES = 4  # in a folder: one for each model, type of keys and values, and version
_FRAME = struct.Struct("<Q32s")
_RECORD = struct.Struct("<QQQ32s")
_USED = struct.Struct("<d")
_PLACE = struct.Struct("<dq")
FIRST = 2**64 - 1
_NOT_IN = -1
_HAS_STATE, _IS_SHARED = 1, 2


class _BrokenFileError(Exception):
    """The file cannot be read any further."""


def save(cache: PrefixCache, runner: ModelRunner, folder: Path, identity: str, limit_bytes: int = LIMIT_BYTES) -> None:
    """Replace the file of `identity` at once, or log why not. If it gets too long, what is worth least is left out."""
    try:
        own = _own(folder)
        handle, temporary = tempfile.mkstemp(prefix="prefix-", suffix=".tmp", dir=own)  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                count = _write(file, cache, runner, identity, limit_bytes)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, _path(own, identity))
        except BaseException:
            os.unlink(temporary)
            raise
        _delete_old(own)
    except OSError as error:
        logger.warning("the prefix cache was not saved to %s: %s", folder, error)
    else:
        logger.info("saved %d blocks of the prefix cache to %s", count, folder)


def load(cache: PrefixCache, runner: ModelRunner, folder: Path, identity: str) -> None:
    """Fill an empty cache with what was saved under `identity`. Broken records are left out, and logged."""
    try:
        path = _path(_own(folder), identity)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            loading = _Loading(cache, runner)
            try:
                loading.read(file, identity)
            finally:
                loading.settle()
    except FileNotFoundError:
        return
    except (_BrokenFileError, OSError) as error:
        logger.warning("the prefix cache saved in %s is not used, or not all of it: %s", folder, error)
    else:
        skipped = f"; {loading.skipped} broken ones were left out" if loading.skipped else ""
        logger.info("loaded %d blocks of the prefix cache%s", loading.count, skipped)


def _own(folder: Path) -> Path:
    """Make our folder in one of the user's, or check that nobody else can have put anything there."""
    own = folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    own.mkdir(mode=0o700, exist_ok=True)
    status = own.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{own} is not a folder of this user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        own.chmod(0o700)
    return own


def _path(folder: Path, identity: str) -> Path:
    return folder / f"prefix-{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}.cache"


def _delete_old(folder: Path) -> None:
    files = sorted(folder.glob("prefix-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[KEPT_FILES:]:
        path.unlink()


def _header(runner: ModelRunner, identity: str) -> bytes:
    groups = [[group.block_bytes, group.window] for group in runner.groups]
    sizes = {"block_tokens": runner.block_tokens, "groups": groups, "state_bytes": runner.state_bytes}
    return json.dumps({"identity": identity, **sizes}).encode()


# Writing


def _write(file: BinaryIO, cache: PrefixCache, runner: ModelRunner, identity: str, limit_bytes: int) -> int:
    """Write the chains worth most, as far as they fit; returns how many nodes."""
    numbers = dict[Node, int]()
    file.write(MAGIC)
    _write_frame(file, _header(runner, identity))
    for leaf in cache.leaves():
        for node in _chain(leaf):
            if node in numbers:
                continue
            if file.tell() + _record_bytes(node, runner) + _FRAME.size > limit_bytes:
                break
            assert node.parent is not None
            _write_frame(file, _record(node, cache.age(node), numbers.get(node.parent, FIRST), runner))
            numbers[node] = len(numbers)
    return len(numbers)


def _chain(leaf: Node) -> list[Node]:
    """The nodes from below the root to a leaf."""
    chain, node = list[Node](), leaf
    while node.parent is not None:
        chain.append(node)
        node = node.parent
    return chain[::-1]


def _record_bytes(node: Node, runner: ModelRunner) -> int:
    sizes = [group.block_bytes for group, block in zip(runner.groups, node.blocks, strict=True) if block != NO_BLOCK]
    return _head_bytes(runner) + sum(sizes) + (0 if node.state == NO_SLOT else runner.state_bytes)


def _head_bytes(runner: ModelRunner) -> int:
    """Of a record, without blocks and state."""
    return _RECORD.size + _age_bytes(runner) + 8 * runner.block_tokens


def _age_bytes(runner: ModelRunner) -> int:
    return _USED.size + _PLACE.size * (2 + len(runner.groups))


def _record(node: Node, age: Age, parent: int, runner: ModelRunner) -> bytes:
    assert node.parent is not None
    held = [(group, block) for group, block in enumerate(node.blocks) if block != NO_BLOCK]
    mask = sum(1 << group for group, _ in held)
    flags = (0 if node.state == NO_SLOT else _HAS_STATE) | (_IS_SHARED if node.is_shared else 0)
    head = _RECORD.pack(parent, mask, flags, node.parent.digest)
    places = (_PLACE.pack(*(place or (0.0, _NOT_IN))) for place in age.places)
    parts = [head, _USED.pack(age.used_at), *places, array("q", node.tokens).tobytes()]
    parts += [runner.read_block(group, block) for group, block in held]
    if node.state != NO_SLOT:
        parts.append(runner.read_state(node.state))
    return b"".join(parts)


def _write_frame(file: BinaryIO, content: bytes) -> None:
    file.write(_FRAME.pack(len(content), _checksum(content)))
    file.write(content)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


# Reading


@dataclass(frozen=True, slots=True)
class _Record:
    parent: int
    parent_digest: bytes
    is_shared: bool
    age: Age
    tokens: tuple[int, ...]
    blocks: dict[int, bytes]  # by group
    state: bytes | None


class _Loading:
    """Puts records into blocks that are free; counts those that fit and those that are broken."""

    def __init__(self, cache: PrefixCache, runner: ModelRunner) -> None:
        self.count = self.skipped = 0
        self._cache, self._runner = cache, runner
        self._nodes = dict[int, Node]()  # by the number of their record
        self._ages = dict[Node, Age]()
        self._full = sum(1 << index for index, group in enumerate(runner.groups) if not group.window)
        self._longest = _head_bytes(runner) + sum(group.block_bytes for group in runner.groups) + runner.state_bytes

    def read(self, file: BinaryIO, identity: str) -> None:
        """Take what there is room for."""
        if file.read(len(MAGIC)) != MAGIC:
            raise _BrokenFileError("it is no such file")
        header = _header(self._runner, identity)
        if next(_frames(file, len(header)), None) != header:
            raise _BrokenFileError("it was written for another model, or in another way")
        for number, content in enumerate(_frames(file, self._longest)):
            record = None if content is None else self._parsed(content)
            if record is not None and not self._has_room(record):
                return
            node = None if record is None else self._new_node(record)
            if record is None or node is None:
                self.skipped += 1
                continue
            self._nodes[number] = node
            self._ages[node] = record.age
            self._fill(node, record)
            self.count += 1

    def settle(self) -> None:
        """Leave the tree as if sequences had filled it and ended, when those of the last process did."""
        for node in [*reversed(self._nodes.values()), *list(self._cache.roots.values())]:
            self._cache.settle(node)
        self._cache.put_in_order(self._ages)

    def _parsed(self, content: bytes) -> _Record | None:
        """A record whose sizes are right."""
        runner, at = self._runner, _head_bytes(self._runner)
        if len(content) < at:
            return None
        parent, mask, flags, parent_digest = _RECORD.unpack_from(content)
        has_state, is_shared = bool(flags & _HAS_STATE), bool(flags & _IS_SHARED)
        ages_end = _RECORD.size + _age_bytes(runner)
        age = _age(content[_RECORD.size : ages_end])
        sizes = {index: group.block_bytes for index, group in enumerate(runner.groups) if mask >> index & 1}
        state_bytes = runner.state_bytes if has_state else 0
        tokens = tuple(array("q", content[ages_end:at]))
        if age is None or len(content) != at + sum(sizes.values()) + state_bytes:
            return None
        if mask & self._full != self._full:
            return None
        blocks = {}
        for group, size in sizes.items():
            blocks[group] = content[at : at + size]
            at += size
        return _Record(parent, parent_digest, is_shared, age, tokens, blocks, content[at:] if has_state else None)

    def _has_room(self, record: _Record) -> bool:
        return all(self._cache.pools[group].free_blocks for group in record.blocks)

    def _new_node(self, record: _Record) -> Node | None:
        """A new node for a record. None if the parent is missing, or if the node is there already."""
        root = record.parent == FIRST
        parent = self._cache.root(record.parent_digest) if root else self._nodes.get(record.parent)
        if parent is None or parent.digest != record.parent_digest:
            return None
        node = self._cache.add_child(parent, record.tokens)
        if node is None or not node.is_empty:
            return None
        node.used_at, node.is_shared = record.age.used_at, record.is_shared
        return node

    def _fill(self, node: Node, record: _Record) -> None:
        try:
            for group, data in record.blocks.items():
                self._fill_block(node, group, data)
            state = record.state
            if state is not None and self._cache.free_slots:
                self._cache.snapshot(node, lambda slot: self._runner.write_state(slot, state))
        except BaseException:
            self._cache.detach(node)
            raise

    def _fill_block(self, node: Node, group: int, data: bytes) -> None:
        block = self._cache.take(group)
        try:
            self._runner.write_block(group, block, data)
            self._cache.hold(node, group, block)
        finally:
            self._cache.release(group, block, node, was_passed=False)


def _age(content: bytes) -> Age | None:
    """What was written of a node's age; None if it is no number."""
    (used_at,) = _USED.unpack_from(content)
    places = list(_PLACE.iter_unpack(content[_USED.size :]))
    if not all(map(math.isfinite, (used_at, *(rank for rank, _ in places)))):
        return None
    return Age(used_at, tuple(None if number == _NOT_IN else (rank, number) for rank, number in places))


def _frames(file: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """The contents of the frames up to the file's end; None of one that is damaged."""
    while head := file.read(_FRAME.size):
        if len(head) < _FRAME.size:
            raise _BrokenFileError("it ends too early")
        length, checksum = _FRAME.unpack(head)
        if length > longest:
            raise _BrokenFileError("a record is longer than it can be")
        content = file.read(length)
        if len(content) < length:
            raise _BrokenFileError("it ends too early")
        yield content if _checksum(content) == checksum else None
