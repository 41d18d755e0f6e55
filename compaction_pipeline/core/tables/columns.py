"""The primitive columns of a table's schema, and the values that bounds of them hold.

Schemas are JSON of the Iceberg spec (appendix C), and bounds are its binary single-value serialization (appendix D).
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BoundValue = bool | int | float | bytes
"""The value of a bound. Two values of one column can be compared."""

# Field ids that Iceberg and Amoro reserve.
PATH_ID = 2147483546
"""The paths in a position-delete file."""
POSITION_ID = 2147483545
"""The positions in a position-delete file."""
OFFSET_ID = 2147482645
"""The offset of a change in its transaction."""
TRANSACTION_ID = 2147482646
"""The transaction of a change. Only files with changes of several transactions have this column."""

_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")
_WIDEST_DECIMAL = 16
_FIXED = re.compile(r"fixed\[(\d+)\]")
_PACKED: Mapping[str, str] = {
    **dict.fromkeys(("int", "date"), "<i"),
    **dict.fromkeys(("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), "<q"),
    "float": "<f",
    "double": "<d",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A primitive column. `type` is its Iceberg type. `repeated` says whether it lies in a list or a map, so that a row may have several
    values of it, or none."""

    field_id: int
    type: str
    repeated: bool = False

    @property
    def is_float(self) -> bool:
        """Whether its values may be NaN."""
        return self.type in ("float", "double")


def primitive_columns(schema: str) -> Mapping[int, Column]:
    """The primitive columns of a schema by their field ids, those inside structs, lists and maps included."""
    return {column.field_id: column for field in json.loads(schema)["fields"] for column in _columns(field["id"], field["type"], False)}


def _columns(field_id: int, kind: Any, repeated: bool) -> Iterator[Column]:
    if isinstance(kind, str):
        yield Column(field_id, kind, repeated)
    elif kind["type"] == "struct":
        for child in kind["fields"]:
            yield from _columns(child["id"], child["type"], repeated)
    elif kind["type"] == "list":
        yield from _columns(kind["element-id"], kind["element"], True)
    else:
        yield from _columns(kind["key-id"], kind["key"], True)
        yield from _columns(kind["value-id"], kind["value"], True)


def bound_value(kind: str, data: bytes) -> BoundValue:
    """The value that a bound of this Iceberg type holds.

    Raises ValueError when the bytes are no value of the type: they have another length, they are no UTF-8, or they are NaN. A decimal may
    have more digits than its type, because some writers do not look, and all readers take such a value. Texts are compared by their UTF-8
    bytes, as Iceberg compares them.
    """
    if kind in _PACKED:
        return _number(kind, data)
    if kind == "boolean":
        if data not in (b"\x00", b"\x01"):
            raise ValueError("a boolean is one byte, 00 or 01")
        return data == b"\x01"
    if kind == "string":
        data.decode()
        return data
    if kind == "binary":
        return data
    if _DECIMAL.fullmatch(kind):
        if not 1 <= len(data) <= _WIDEST_DECIMAL:
            raise ValueError(f"a decimal has 1 to {_WIDEST_DECIMAL} bytes, but these are {len(data)}")
        return int.from_bytes(data, "big", signed=True)
    width = 16 if kind == "uuid" else int(_fixed[1]) if (_fixed := _FIXED.fullmatch(kind)) is not None else None
    if width is None:
        raise ValueError(f"values of the type {kind} have no bounds")
    if len(data) != width:
        raise ValueError(f"a {kind} has {width} bytes, but these are {len(data)}")
    return data


def _number(kind: str, data: bytes) -> int | float:
    form = _PACKED[kind]
    if len(data) != struct.calcsize(form):
        raise ValueError(f"a {kind} has {struct.calcsize(form)} bytes, but these are {len(data)}")
    value: int | float = struct.unpack(form, data)[0]
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound")
    return value


CHANGE_COLUMNS: Mapping[int, Column] = {number: Column(number, "long") for number in (OFFSET_ID, TRANSACTION_ID)}
"""The columns that merged change files have beside those of the schema: a row's offset in its transaction, and its transaction."""
