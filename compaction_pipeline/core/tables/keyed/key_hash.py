"""The hash of a primary key, as Amoro's writers compute it (`PrimaryKeyData`).

It is Java's `Arrays.hashCode` of the key's values, made positive. All writers of a table must agree on it: a row and the delete of this row
must get the same hash, or else the delete does not reach the row.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

_INT_BITS = 0xFFFFFFFF
_LONG_BITS = 0xFFFFFFFFFFFFFFFF
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")
_TRUE, _FALSE = 1231, 1237
_FLOAT_NAN, _DOUBLE_NAN = 0x7FC00000, 0x7FF8000000000000
"""Java hashes each NaN as this one."""


def key_hash(values: Sequence[Any], types: Sequence[str]) -> int:
    """The hash of a key, in 0..2³¹ − 1. `types` are the Iceberg types of the columns, in the order of the primary key.

    Values are Iceberg's internal ones: a date is a number of days, a time or timestamp a number of microseconds, and a UUID 16 bytes.
    NULL is None. Raises ValueError for a type that cannot be in a key, and for a decimal with more digits than its type has.
    """
    total = 1
    for value, kind in zip(values, types, strict=True):
        total = 31 * total + (0 if value is None else value_hash(value, kind))
    low = total & _INT_BITS
    signed = low - (1 << 32) if low >> 31 else low
    # Java's Math.abs of the smallest int is that int again. Amoro takes the largest int for it.
    return min(abs(signed), 0x7FFFFFFF)


def may_be_in_a_key(kind: str) -> bool:
    """Whether a column of this Iceberg type has a hash, and so may be in a primary key."""
    return _DECIMAL.fullmatch(kind) is not None or kind.partition("[")[0] in _HASHERS


def value_hash(value: Any, kind: str) -> int:
    """The part of one column, whose value is not NULL, in the hash of a key. Only its lowest 32 bits count. Raises as `key_hash`."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return _of_decimal(value, int(decimal[1]))
    hasher = _HASHERS.get(kind.partition("[")[0])
    if hasher is None:
        raise ValueError(
            f"a column of type {kind} cannot be in a primary key: keys hold decimals and values of the types {', '.join(_HASHERS)}"
        )
    return hasher(value)


def _of_int(value: int) -> int:
    return value


def _of_long(value: int) -> int:
    bits = value & _LONG_BITS
    return (bits ^ (bits >> 32)) & _INT_BITS


def _of_float(value: float) -> int:
    return _FLOAT_NAN if value != value else int(struct.unpack(">I", struct.pack(">f", value))[0])


def _of_double(value: float) -> int:
    return _of_long(_DOUBLE_NAN if value != value else int(struct.unpack(">Q", struct.pack(">d", value))[0]))


def _of_string(value: str) -> int:
    # Java's texts consist of UTF-16 units. A character beyond U+FFFF is two of them.
    encoded = value.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        total = (31 * total + unit) & _INT_BITS
    return total


def _of_decimal(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} cannot be in a key: a decimal has digits")
    unscaled, rest = divmod(int("".join(map(str, digits))) * 10 ** max(exponent + scale, 0), 10 ** max(-exponent - scale, 0))
    if rest:
        raise ValueError(f"{value} has more digits after the point than its type: {scale}")
    words = 0
    for word in _words(unscaled):
        words = (31 * words + word) & _INT_BITS
    return 31 * (-words if sign else words) + scale


def _words(magnitude: int) -> list[int]:
    """The 32-bit words of a number, the highest first. They are the `mag` of Java's BigInteger."""
    count = -(-magnitude.bit_length() // 32)
    return [(magnitude >> (32 * place)) & _INT_BITS for place in reversed(range(count))]


def _of_uuid(value: bytes) -> int:
    high, low = struct.unpack(">QQ", value)
    return _of_long(high ^ low)


def _of_bytes(value: bytes) -> int:
    total = 1
    for byte in struct.unpack(f"{len(value)}b", value)[::-1]:
        total = (31 * total + byte) & _INT_BITS
    return total


_HASHERS: Mapping[str, Callable[[Any], int]] = {
    "int": _of_int,
    "long": _of_long,
    "string": _of_string,
    "date": _of_int,
    "time": _of_long,
    "timestamp": _of_long,
    "timestamptz": _of_long,
    "uuid": _of_uuid,
    "binary": _of_bytes,
    "fixed": _of_bytes,
    "boolean": lambda value: _TRUE if value else _FALSE,
    "float": _of_float,
    "double": _of_double,
}
