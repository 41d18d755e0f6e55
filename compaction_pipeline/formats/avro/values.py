"""Finds Avro values in bytes without turning them into Python values (Avro spec: "Binary Encoding").

A value that is carried from one manifest into another is a slice of bytes here. So it does not change, whatever a decoder would make of it.
Schemas are Avro's JSON, in the form of `plain_schema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

AvroType = Any
"""An Avro schema in its JSON form: a name, a list (union), or a mapping."""

Skip = Callable[[bytes, int], int]
"""Takes the place where a value begins, and returns the place behind the value."""

SkipItems = Callable[[bytes, int, int], int]
"""Takes the place where the items of a run begin, and how many they are. Returns the place behind the last one."""

_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class DamagedAvro(ValueError):
    """Bytes are not what their schema says: they were cut or overwritten."""


class UnknownAvro(Exception):
    """A schema or codec that Avro or Iceberg may allow, but that this version does not read. Nothing is corrupt."""


def plain_schema(schema: AvroType) -> AvroType:
    """A schema that only says how bytes lie.

    Each name that refers to a type is replaced by the type, and each type gets a name of its own. `logicalType` is renamed to `logical`. A
    library then gives numbers and bytes in place of Python's dates, which end at the year 9999. Raises UnknownAvro for a name that is not
    defined, or a type that contains itself.
    """
    return _Plain().of(schema)


class _Plain:
    def __init__(self) -> None:
        self._defined: dict[str, AvroType] = {}
        self._open: set[str] = set()
        self._count = 0

    def of(self, schema: AvroType) -> AvroType:
        if isinstance(schema, list):
            return [self.of(each) for each in schema]
        if isinstance(schema, str):
            return self._of_name(schema)
        if not isinstance(schema, Mapping):
            raise UnknownAvro(f"its schema holds {schema!r}, which is no type")
        kind = schema.get("type")
        if isinstance(kind, (list, Mapping)):
            return self.of(kind)
        rest = {key: value for key, value in schema.items() if key not in ("logicalType", "default", "doc", "aliases", "namespace")}
        if "logicalType" in schema:
            rest["logical"] = schema["logicalType"]
        if kind in _NAMED:
            return self._of_named(schema, rest)
        if kind == "array":
            return {**rest, "items": self.of(schema["items"])}
        if kind == "map":
            return {**rest, "values": self.of(schema["values"])}
        return rest if kind in _PRIMITIVES else self.of(kind)

    def _of_name(self, name: str) -> AvroType:
        if name in _PRIMITIVES:
            return name
        if name not in self._defined or name in self._open:
            raise UnknownAvro(f"its schema names the type {name!r}, which it does not define")
        return self.of(self._defined[name])

    def _of_named(self, schema: Mapping[str, Any], rest: dict[str, Any]) -> AvroType:
        """A type that has a name. `rest` is what of it stays."""
        name = str(schema.get("name", ""))
        self._defined[name] = schema
        self._open.add(name)
        self._count += 1
        rest["name"] = f"t{self._count}"
        if schema["type"] in ("record", "error"):
            rest["fields"] = [
                {key: value for key, value in field.items() if key not in ("default", "doc", "aliases")}
                | {"type": self.of(field["type"]), "name": f"f{place}"}
                for place, field in enumerate(schema["fields"])
            ]
        self._open.discard(name)
        return rest


def named_once(schema: AvroType) -> AvroType:
    """The schema with types renamed so that no two have the same name. Java refuses a schema in which two types have the same name, and
    PyIceberg gives all decimals of one precision the same name."""
    seen: set[str] = set()

    def renamed(kind: AvroType) -> AvroType:
        if isinstance(kind, list):
            return [renamed(each) for each in kind]
        if not isinstance(kind, Mapping):
            return kind
        copy = {key: renamed(value) if key in ("type", "items", "values") else value for key, value in kind.items()}
        if "fields" in copy:
            copy["fields"] = [{**field, "type": renamed(field["type"])} for field in copy["fields"]]
        if copy.get("type") in _NAMED:
            name = copy["name"]
            while copy["name"] in seen:
                copy["name"] = f"{name}_{len(seen)}"
            seen.add(copy["name"])
        return copy

    return renamed(schema)


def read_long(content: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it. Raises DamagedAvro if it is longer than Avro allows, IndexError if the bytes end."""
    byte = content[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise DamagedAvro(f"a number at byte {position} is longer than Avro allows: it was overwritten")


def long_bytes(value: int) -> bytes:
    """The zigzag varint of a number."""
    number = (value << 1) ^ (value >> 63)
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def nullable(kind: AvroType) -> tuple[AvroType, int | None]:
    """The type of an optional value, and the place of null in its union. For a required value: its type and None."""
    if isinstance(kind, list):
        if len(kind) == 1:
            return kind, None
        if len(kind) == 2 and "null" in kind:
            null = kind.index("null")
            return kind[1 - null], null
    return kind, None


def type_name(kind: AvroType) -> str:
    """The name of a type: `record`, `long`, `fixed` and so on, or `union`."""
    return "union" if isinstance(kind, list) else str(kind if isinstance(kind, str) else kind["type"])


def skipper(kind: AvroType) -> Skip:
    """A function that skips a value of this type.

    It raises IndexError or DamagedAvro if the bytes cannot be such a value. If the bytes were cut, it may return a place behind their end.
    So the caller must check that a block ends where its last value ends.
    """
    name = type_name(kind)
    if name == "union":
        return _skip_union(kind)
    if name in ("int", "long", "enum"):
        return _skip_integer
    if name in ("bytes", "string"):
        return _skip_bytes
    if name in ("record", "error"):
        return in_turn([skipper(field["type"]) for field in kind["fields"]])
    if name == "array":
        return _skip_array(kind["items"])
    if name == "map":
        return _skip_runs(_one_by_one(in_turn([_skip_bytes, skipper(kind["values"])])))
    size = {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(name)
    size = int(kind["size"]) if name == "fixed" else size
    if size is None:
        raise UnknownAvro(f"its schema holds the type {name!r}, which this version does not read")
    return lambda content, position, size=size: position + size  # type: ignore[misc]


def in_turn(skips: list[Skip]) -> Skip:
    """A function that skips several values, one behind the other."""
    if len(skips) == 1:
        return skips[0]

    def skip(content: bytes, position: int) -> int:
        for each in skips:
            position = each(content, position)
        return position

    return skip


class RecordWalk:
    """Finds where the fields of a record begin, and where the last one ends."""

    def __init__(self, record: AvroType) -> None:
        self._skips = [skipper(field["type"]) for field in record["fields"]]

    def places(self, content: bytes, position: int) -> list[int]:
        """For the record that begins at `position`: where each of its fields begins, in order, and where the last one ends."""
        places = [position]
        for skip in self._skips:
            position = skip(content, position)
            places.append(position)
        return places


def items(kind: AvroType, content: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Where each item of an array begins and ends. The writer may have split the array into runs of any kind."""
    skip = skipper(kind["items"])
    while True:
        count, position = read_long(content, position)
        if count == 0:
            return
        if count < 0:
            # The size of the run in bytes stands before its items.
            _, position = read_long(content, position)
        for _ in range(abs(count)):
            start, position = position, skip(content, position)
            yield start, position


def read_bytes(content: bytes, position: int) -> bytes:
    """The content of a string or a byte array. Raises DamagedAvro if it would end behind the bytes."""
    length, start = read_long(content, position)
    if length < 0 or start + length > len(content):
        raise DamagedAvro(f"it ends after {len(content)} bytes, inside of a value: it was cut")
    return content[start : start + length]


def _skip_integer(content: bytes, position: int) -> int:
    while content[position] > 0x7F:
        position += 1
    return position + 1


def _skip_bytes(content: bytes, position: int) -> int:
    byte = content[position]
    if byte < 0x80 and not byte & 1:
        return position + 1 + (byte >> 1)
    length, position = read_long(content, position)
    if length < 0:
        raise DamagedAvro(f"a value at byte {position} has the length {length}: it was overwritten")
    return position + length


def _skip_union(kinds: list[AvroType]) -> Skip:
    kind, null = nullable(kinds)
    if null is not None:
        inner, is_null, is_value = skipper(kind), null << 1, (1 - null) << 1

        def skip_optional(content: bytes, position: int) -> int:
            branch = content[position]
            if branch == is_null:
                return position + 1
            if branch != is_value:
                raise DamagedAvro(f"a value at byte {position} is of a type that its schema does not have: it was overwritten")
            return inner(content, position + 1)

        return skip_optional
    branches = [skipper(each) for each in kinds]

    def skip(content: bytes, position: int) -> int:
        branch, position = read_long(content, position)
        if not 0 <= branch < len(branches):
            raise DamagedAvro(f"a value at byte {position} is of a type that its schema does not have: it was overwritten")
        return branches[branch](content, position)

    return skip


def _skip_array(kind: AvroType) -> Skip:
    inner = [field["type"] for field in kind["fields"]] if type_name(kind) == "record" else [kind]
    names = [type_name(each) for each in inner]
    # Counts and bounds of columns are most of an entry, so their items are skipped at once.
    if all(name in ("int", "long") for name in names):
        return _skip_runs(_skip_at_once(INTEGER * len(names)), INTEGER * len(names))
    if names == ["int", "bytes"]:
        return _skip_runs(_one_by_one(in_turn([_skip_integer, _skip_bytes])), INTEGER + SHORT_BYTES)
    return _skip_runs(_one_by_one(skipper(kind)))


def _skip_runs(skip_items: SkipItems, item: bytes | None = None) -> Skip:
    """Skip an array or a map. `skip_items` skips the items of a run, and `item` is the expression of an item that is not very long."""

    def skip(content: bytes, position: int) -> int:
        # Nearly every array is one run of fewer than 64 items, or has none.
        first = content[position]
        if item is not None and 0 < first < 0x80 and not first & 1:
            found = _items(item, first >> 1, b"\x00")(content, position + 1)
            if found is not None:
                return found.end()
        while content[position]:
            count, position = read_long(content, position)
            if count == 0:
                return position
            if count > 0:
                position = skip_items(content, position, count)
                continue
            # The size of the run in bytes stands before its items.
            size, position = read_long(content, position)
            if size < 0:
                raise DamagedAvro(f"a run at byte {position} has the size {size}: it was overwritten")
            position += size
        return position + 1

    return skip


def _one_by_one(one: Skip) -> SkipItems:
    def skip(content: bytes, position: int, count: int) -> int:
        for _ in range(count):
            position = one(content, position)
        return position

    return skip


INTEGER = rb"[\x80-\xff]*[\x00-\x7f]"
SHORT_BYTES = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (2 * size, size) for size in (8, 4, 16, *{*range(64)} - {8, 4, 16})) + b")"
"""Bytes that are shorter than 64, so that one byte holds their length. Those of numbers stand first."""
MOST_AT_ONCE = 4096


def _skip_at_once(item: bytes) -> SkipItems:
    """Skip items that are numbers."""

    def skip(content: bytes, position: int, count: int) -> int:
        if count > len(content):
            raise DamagedAvro(f"a run at byte {position} says that it holds {count} numbers: it was overwritten")
        while count > 0:
            step = min(count, MOST_AT_ONCE)
            found = _items(item, step)(content, position)
            if found is None:
                raise DamagedAvro(f"it ends after {len(content)} bytes, inside of a run of numbers: it was cut")
            position = found.end()
            count -= step
        return position

    return skip


@lru_cache(maxsize=256)
def _items(item: bytes, count: int, end: bytes = b"") -> Callable[..., re.Match[bytes] | None]:
    return re.compile(b"(?:" + item + b"){%d}" % count + end, re.DOTALL).match
