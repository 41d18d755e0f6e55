"""Thrift's compact protocol (thrift-compact-protocol.md), as far as Parquet's footers and page headers need it.

A struct is a dict of field id → (kind, value). The kind is kept, so that a struct can be written again as it was read. A list is (kind of
its elements, list of values). Damaged bytes raise DamagedParquet, and nothing else.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MAX_DEPTH = 32
_MOST_FIELDS = 64
_ANY_NUMBER = 1 << 62
Struct = dict[int, tuple[int, Any]]


class DamagedParquet(ValueError):
    """Bytes are not what the format, or another part of the file, says that they are: they were cut or overwritten, or never were."""


class TooManyValues(DamagedParquet):
    """Bytes hold more values than the caller wants to have in memory."""


def field(struct: Struct, number: int, default: Any = None) -> Any:
    """The value of a field, or the default if it is not set. Of a list only the values are returned."""
    found = struct.get(number)
    if found is None:
        return default
    return found[1][1] if found[0] in (LIST, SET) else found[1]


def read_struct(data: bytes | memoryview, at: int = 0, most_values: int = _ANY_NUMBER) -> tuple[Struct, int]:
    """The struct that begins at `at`, and the place behind it.

    Raises DamagedParquet if the bytes are not a struct, and TooManyValues if they hold more than `most_values`. A value of one byte may
    take more than a hundred in memory.
    """
    try:
        return _struct(data, at, 0, [most_values])
    except IndexError:
        raise DamagedParquet("Thrift ends too early") from None


def _struct(data: bytes | memoryview, at: int, depth: int, left: list[int]) -> tuple[Struct, int]:
    """`left` holds how many more values may come."""
    if depth > _MAX_DEPTH:
        raise DamagedParquet("Thrift is nested too deeply")
    struct: Struct = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            _count(left, 1 + len(struct))
            return struct, at
        kind, delta = head & 15, head >> 4
        if delta:
            number += delta
        else:
            number, at = _integer(data, at)
        if len(struct) > _MOST_FIELDS:
            raise DamagedParquet("Thrift holds a struct of more fields than any of Parquet's has")
        if number in struct:
            # Readers differ in which of the two they take.
            raise DamagedParquet("Thrift holds a field twice")
        if kind <= FALSE:
            struct[number] = (kind, kind == TRUE)
        else:
            value, at = _value(data, at, kind, depth, left)
            struct[number] = (kind, value)


def _count(left: list[int], values: int) -> None:
    left[0] -= values
    if left[0] < 0:
        raise TooManyValues("Thrift holds too many values")


def _value(data: bytes | memoryview, at: int, kind: int, depth: int, left: list[int]) -> tuple[Any, int]:
    if kind in (I32, I64, I16):
        return _integer(data, at)
    if kind == BINARY:
        length, at = _unsigned(data, at)
        if at + length > len(data):
            raise DamagedParquet("Thrift ends too early")
        return bytes(data[at : at + length]), at + length
    if kind == STRUCT:
        return _struct(data, at, depth + 1, left)
    if kind in (LIST, SET):
        return _list(data, at, depth, left)
    if kind in (TRUE, FALSE):
        # For an element of a list the byte 1 is true, whichever of the two kinds the writer named.
        return data[at] == TRUE, at + 1
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        if at + 8 > len(data):
            raise DamagedParquet("Thrift ends too early")
        return bytes(data[at : at + 8]), at + 8
    raise DamagedParquet(f"Thrift kind {kind} does not occur in Parquet")


def _list(data: bytes | memoryview, at: int, depth: int, left: list[int]) -> tuple[Any, int]:
    head = data[at]
    at += 1
    kind, length = head & 15, head >> 4
    if length == 15:
        length, at = _unsigned(data, at)
    if length > len(data) - at:
        raise DamagedParquet("Thrift ends too early")
    _count(left, length)
    values = []
    for _ in range(length):
        value, at = _value(data, at, kind, depth, left)
        values.append(value)
    return (kind, values), at


def _unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if value >> 64 or (byte > 127 and shift > 63):
            raise DamagedParquet("Thrift holds a number of more than 64 bits")
        if byte < 128:
            return value, at


def _integer(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def write_struct(struct: Struct) -> bytes:
    """The bytes of a struct. Its fields are in ascending order."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: Struct) -> None:
    previous = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if kind <= FALSE:
            kind = TRUE if value else FALSE
        delta = number - previous
        if 0 < delta <= 15:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        if kind > FALSE:
            _write_value(out, kind, value)
        previous = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_integer(out, value)
    elif kind == BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        element, values = value
        if len(values) < 15:
            out.append(len(values) << 4 | element)
        else:
            out.append(0xF0 | element)
            _write_unsigned(out, len(values))
        for each in values:
            _write_value(out, element, each)
    elif kind <= FALSE:
        out.append(TRUE if value else FALSE)
    elif kind == BYTE:
        out.append(value)
    elif kind == DOUBLE:
        out += value
    else:
        raise ValueError(f"Thrift kind {kind} does not occur in Parquet")


def _write_unsigned(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_unsigned(out, (value << 1) ^ (value >> 63))
