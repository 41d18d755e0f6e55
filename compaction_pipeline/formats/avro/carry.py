"""Carries Avro values from one schema into another without changing their bytes.

If both schemas lay a value out in the same way, its bytes are copied. They differ if a writer declares a required value as optional (or the
other way round), splits a list into other runs, or wrote before the type of a column was promoted. The value is then converted exactly, or
not at all. Fields are matched by Iceberg's ids. A field that the target does not have is left out, as in Iceberg's Java code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from compaction_pipeline.formats.avro.values import (
    AvroType,
    DamagedAvro,
    RecordWalk,
    UnknownAvro,
    items,
    long_bytes,
    nullable,
    read_bytes,
    type_name,
)

Carry = Callable[[bytes, int, int], bytes]
"""Takes the bytes, and the places where a value begins and ends. Returns the bytes of the same value in the other schema."""


def carrier(source: AvroType, target: AvroType, defaults: Mapping[int, bytes] | None = None, what: str = "a value") -> Carry:
    """Returns a function that turns the bytes of a `source` value into those of a `target` value.

    `defaults` gives, by field id, the bytes of required fields that a source may lack. `what` names the value in errors. Raises UnknownAvro
    if the types do not fit. The returned function raises UnknownAvro for a null where the target requires a value.
    """
    inner, null = nullable(source)
    wanted, target_null = nullable(target)
    if null is None and target_null is None:
        return _plain_carrier(inner, wanted, defaults or {}, what)
    carry = None if "null" in (inner, wanted) else _plain_carrier(inner, wanted, defaults or {}, what)
    if carry is _copy and null == target_null:
        return _copy
    front = b"" if target_null is None else long_bytes(1 - target_null)

    def carried(content: bytes, start: int, end: int) -> bytes:
        if carry is None or (null is not None and content[start] == null << 1):
            if target_null is None:
                raise UnknownAvro(f"{what} is null, which the Iceberg specification forbids")
            return long_bytes(target_null)
        return front + carry(content, start if null is None else start + 1, end)

    return carried


class RecordCarrier:
    """Carries records field by field. `fields` gives the fields one by one."""

    def __init__(self, source: AvroType, target: AvroType, defaults: Mapping[int, bytes] | None = None) -> None:
        self._walk = RecordWalk(source)
        places = {field.get("field-id"): place for place, field in enumerate(source["fields"])}
        self._steps: list[tuple[int, Carry]] = []
        for field in target["fields"]:
            number, kind = field["field-id"], field["type"]
            if number in places:
                one = carrier(source["fields"][places[number]]["type"], kind, defaults, f"field id {number}")
                self._steps.append((places[number], one))
            else:
                self._steps.append((-1, _always(_absent(kind, number, defaults or {}))))
        copied = [(place, _copy) for place in range(len(source["fields"]))]
        rest = self._steps[len(copied) :]
        self.suffix: bytes | None = None
        """What stands behind the bytes of a source record, when all of them are copied as they are; None when they are not."""
        if self._steps[: len(copied)] == copied and all(place < 0 for place, _ in rest):
            self.suffix = b"".join(carry(b"", 0, 0) for _, carry in rest)

    def fields(self, content: bytes, start: int = 0) -> list[bytes]:
        """The bytes of each field of the target, for the record that begins at `start`. Raises DamagedAvro if the bytes end before
        the record does."""
        places = self._walk.places(content, start)
        if places[-1] > len(content):
            raise DamagedAvro(f"it ends after {len(content)} bytes, inside of a value: it was cut")
        return [carry(content, places[place], places[place + 1]) if place >= 0 else carry(content, 0, 0) for place, carry in self._steps]

    def __call__(self, content: bytes, start: int, end: int) -> bytes:
        return b"".join(self.fields(content, start)) if self.suffix is None else content[start:end] + self.suffix


def _absent(kind: AvroType, number: int, defaults: Mapping[int, bytes]) -> bytes:
    _, null = nullable(kind)
    if null is not None:
        return long_bytes(null)
    if number not in defaults:
        raise UnknownAvro(f"it lacks field id {number}, which the Iceberg specification requires")
    return defaults[number]


def _always(value: bytes) -> Carry:
    return lambda content, start, end: value


def _copy(content: bytes, start: int, end: int) -> bytes:
    return content[start:end]


def _plain_carrier(source: AvroType, target: AvroType, defaults: Mapping[int, bytes], what: str) -> Carry:
    name, wanted = type_name(source), type_name(target)
    if name == wanted == "record":
        record = RecordCarrier(source, target, defaults)
        return _copy if record.suffix == b"" else record
    _refuse_other_meaning(source, target, what)
    if _layout(source) == _layout(target):
        return _copy
    if (name, wanted) == ("float", "double"):
        return lambda content, start, end: struct.pack("<d", *struct.unpack_from("<f", content, start))
    if wanted == "fixed" and name in ("fixed", "bytes") and _logical(source) == _logical(target) == "decimal":
        return _decimal_carrier(name, int(target["size"]), what)
    if name == wanted == "array":
        return _array_carrier(source, target, what)
    raise UnknownAvro(f"{what} is {_said(source)} in its manifest but {_said(target)} in the table")


def _refuse_other_meaning(source: AvroType, target: AvroType, what: str) -> None:
    """Raise UnknownAvro if logical types differ: the same number may be a day in one type and a moment in the other."""
    logical, wanted = _logical(source), _logical(target)
    if (logical and wanted and logical != wanted) or (logical == wanted == "decimal" and source.get("scale", 0) != target.get("scale", 0)):
        raise UnknownAvro(f"{what} is {_said(source)} in its manifest but {_said(target)} in the table")


def _logical(kind: AvroType) -> str | None:
    return kind.get("logical") if isinstance(kind, Mapping) else None


def _said(kind: AvroType) -> str:
    logical = _logical(kind)
    return f"{type_name(kind)} ({logical})" if logical else type_name(kind)


def _layout(kind: AvroType) -> Any:
    """The layout of a type's values. Two types with equal layouts have the same bytes for the same value."""
    if isinstance(kind, list):
        return tuple(_layout(each) for each in kind)
    name = type_name(kind)
    if name in ("int", "long"):
        return "whole"
    if name == "fixed":
        return name, kind["size"]
    if name == "array":
        return name, _layout(kind["items"])
    if name == "record":
        return name, tuple(_layout(field["type"]) for field in kind["fields"])
    return name


def _decimal_carrier(name: str, size: int, what: str) -> Carry:
    def carried(content: bytes, start: int, end: int) -> bytes:
        unscaled = int.from_bytes(read_bytes(content, start) if name == "bytes" else content[start:end], "big", signed=True)
        try:
            return unscaled.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise UnknownAvro(f"{what} is a decimal of more digits than the table's column has") from None

    return carried


def _array_carrier(source: AvroType, target: AvroType, what: str) -> Carry:
    one = carrier(source["items"], target["items"], what=what)

    def carried(content: bytes, start: int, end: int) -> bytes:
        values = [one(content, *places) for places in items(source, content, start)]
        return long_bytes(len(values)) + b"".join(values) + b"\x00" if values else b"\x00"

    return carried


def encoded(kind: AvroType, value: Any) -> bytes:
    """The Avro bytes of a plain value: numbers, text, bytes, lists, and mappings by field id for records."""
    inner, null = nullable(kind)
    if null is not None:
        return long_bytes(null) if value is None else long_bytes(1 - null) + encoded(inner, value)
    name = type_name(kind)
    if name in ("int", "long"):
        return long_bytes(value)
    if name in ("string", "bytes"):
        content = value.encode() if name == "string" else bytes(value)
        return long_bytes(len(content)) + content
    if name == "array":
        return (long_bytes(len(value)) + b"".join(encoded(kind["items"], each) for each in value) if value else b"") + b"\x00"
    if name == "record":
        return b"".join(encoded(field["type"], value[field["field-id"]]) for field in kind["fields"])
    if name == "fixed" and len(value) == kind["size"]:
        return bytes(value)
    if name == "boolean":
        return b"\x01" if value else b"\x00"
    if name in ("float", "double"):
        return struct.pack("<f" if name == "float" else "<d", value)
    raise ValueError(f"{value!r} is no {_said(kind)}")
