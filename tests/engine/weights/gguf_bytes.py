"""Builds GGUF files byte by byte, so that tests can break any field of one."""

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes, *, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw) if length is None else length) + raw


def pair(key: str | bytes, type_id: int, value: bytes) -> bytes:
    return string(key) + u32(type_id) + value


def array(type_id: int, count: int, items: bytes) -> bytes:
    return u32(type_id) + u64(count) + items


def tensor(name: str | bytes, dimensions: Sequence[int], type_id: int = 0, offset: int = 0) -> bytes:
    """One line of the list of tensors; `dimensions` in the file's order, fastest first."""
    return string(name) + u32(len(dimensions)) + b"".join(map(u64, dimensions)) + u32(type_id) + u64(offset)


ARCHITECTURE = pair("general.architecture", STRING, string("llama"))


def gguf_bytes(
    pairs: Sequence[bytes] = (ARCHITECTURE,),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: bytes = b"\3\0\0\0",
    pair_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    header = magic + version
    header += u64(len(tensors) if tensor_count is None else tensor_count)
    header += u64(len(pairs) if pair_count is None else pair_count)
    header += b"".join(pairs) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


def sound_file(version: int = 3) -> bytes:
    """A small file with a value of every kind, and tensors of one, two and three dimensions."""
    pairs = [
        ARCHITECTURE,
        pair("a.u8", U8, b"\xff"),
        pair("a.i8", I8, b"\xff"),
        pair("a.u16", U16, struct.pack("<H", 65535)),
        pair("a.i16", I16, struct.pack("<h", -2)),
        pair("a.u32", U32, u32(2**32 - 1)),
        pair("a.i32", I32, struct.pack("<i", -3)),
        pair("a.f32", F32, struct.pack("<f", 0.5)),
        pair("a.true", BOOL, b"\1"),
        pair("a.text", STRING, string("zażółć")),
        pair("a.u64", U64, u64(2**64 - 1)),
        pair("a.i64", I64, struct.pack("<q", -4)),
        pair("a.f64", F64, struct.pack("<d", 0.1)),
        pair("b.numbers", ARRAY, array(I32, 3, struct.pack("<3i", 1, -2, 3))),
        pair("b.flags", ARRAY, array(BOOL, 2, b"\0\1")),
        pair("b.strings", ARRAY, array(STRING, 3, string("a") + string("") + string(b"\xff\xfe"))),
        pair("b.nested", ARRAY, array(ARRAY, 2, array(U8, 2, b"\1\2") + array(STRING, 1, string("x")))),
        pair("b.empty", ARRAY, array(F32, 0, b"")),
    ]
    tensors = [
        tensor("vector", [5], 0, 0),
        tensor("matrix", [32, 3], 2, 32),
        tensor("cube", [4, 3, 2], 1, 96),
    ]
    data = bytes(range(144))
    return gguf_bytes(pairs, tensors, data, version=u32(version))
