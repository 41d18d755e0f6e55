"""Decodes only those parts of a manifest's entries that planning needs.

Counts and bounds of columns are most of an entry. No plan looks at them, so they are skipped and not decoded. Partition values stay bytes,
which the caller decodes. A rewrite that carries an entry over takes the bytes of its whole `data_file`. PyIceberg's compiled decoder is not
used: 0.12.0 reads a double as a C float.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from compaction_pipeline.formats.avro.frames import read_frame
from compaction_pipeline.formats.avro.shapes import Places, Shapes
from compaction_pipeline.formats.avro.values import (
    AvroType,
    DamagedAvro,
    UnknownAvro,
    items,
    nullable,
    plain_schema,
    read_bytes,
    read_long,
    skipper,
    type_name,
)

_Read = Callable[[bytes, int, int], Any]
_Value = Callable[[bytes, int], Any]

_DATA_FILE = 2
_PARTITION = 102


class DecodedEntry(NamedTuple):
    """One entry, as the manifest has it. Nothing is inherited yet, and a field that the file lacks is None.

    `partition` and `data_file` are bytes of the types that `ManifestDecoder` names.
    """

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    content: int | None
    path: str
    format: str
    partition: bytes | None
    record_count: int
    file_size_bytes: int
    value_counts: Mapping[int, int] | None
    null_value_counts: Mapping[int, int] | None
    lower_bounds: Mapping[int, bytes] | None
    upper_bounds: Mapping[int, bytes] | None
    key_metadata: bytes | None
    equality_ids: Sequence[int] | None
    sort_order_id: int | None
    referenced_data_file: str | None
    first_row_id: int | None
    data_file: bytes | None


_ENTRY_SLOTS = {0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number"}
_FILE_SLOTS = {
    134: "content",
    100: "path",
    101: "format",
    102: "partition",
    103: "record_count",
    104: "file_size_bytes",
    109: "value_counts",
    110: "null_value_counts",
    125: "lower_bounds",
    128: "upper_bounds",
    131: "key_metadata",
    135: "equality_ids",
    140: "sort_order_id",
    143: "referenced_data_file",
    142: "first_row_id",
}
"""Field ids of the spec's manifest entry and data file, and the slots into which they are read."""

_REQUIRED = ("status", "path", "format", "record_count", "file_size_bytes")
_OF_COLUMNS = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
_ONLY_PLANNED = ("format", *_OF_COLUMNS, "key_metadata", "equality_ids", "sort_order_id", "referenced_data_file")
"""What a rewrite, which carries the bytes of `data_file`, does not ask for."""
_ALL_BUT_PATHS = tuple(name for name in (*_ENTRY_SLOTS.values(), *_FILE_SLOTS.values()) if name not in ("status", "path"))
_STATUS_AND_PATH = itemgetter(DecodedEntry._fields.index("status"), DecodedEntry._fields.index("path"))


class ManifestDecoder:
    """The bytes of a manifest file: its schema and its entries.

    For a corrupt file it raises DamagedAvro, or whatever a decoder raises for bytes that are not Avro. It raises UnknownAvro for a file
    that this version cannot read.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._frame = read_frame(content)
        if "avro.schema" not in self._frame.meta:
            raise DamagedAvro("its header holds no schema")
        self.schema: AvroType = _plain(self._frame.meta["avro.schema"])
        """The type of an entry."""
        self.spec_id = int(self._frame.meta.get("partition-spec-id", b"0"))
        """The spec id in the file's own header. A manifest list names it too."""
        self.data_file_type: AvroType = _of_id(self.schema, _DATA_FILE)
        self.partition_type: AvroType | None = next(
            (field["type"] for field in self.data_file_type["fields"] if field.get("field-id") == _PARTITION), None
        )
        self._refuse_undeclared_lengths()

    def _refuse_undeclared_lengths(self) -> None:
        """Check a partition field of type fixed. Raises UnknownAvro if its values have an undeclared length before them.

        Java's library writes a length before fixed values although the Avro schema says that there is none, and reads only that form. Such
        a file is not corrupt, but we do not write this form, and a table must not mix both.
        """
        if self.partition_type is None or not any(_is_plain_fixed(field) for field in self.partition_type["fields"]):
            return
        other = deepcopy(self.schema)
        partition = _of_id(_of_id(other, _DATA_FILE), _PARTITION)
        fixed = [field for field in partition["fields"] if _is_plain_fixed(field)]
        for field in fixed:
            kind, null = nullable(field["type"])
            field["type"] = "bytes" if null is None else ["bytes" if each is kind else each for each in field["type"]]
        if not self._fits(self.schema) and self._fits(other):
            raise UnknownAvro(
                f"its partition values of field id {fixed[0]['field-id']}, a fixed type, have their length in front, as Iceberg's Java "
                "library writes them, but its Avro schema says that they have none"
            )

    def _fits(self, schema: AvroType) -> bool:
        """Whether every block is a whole number of entries of this type."""
        skip = skipper(schema)
        try:
            for records, block in self._frame.contents(self._content):
                position = 0
                for _ in range(records):
                    position = skip(block, position)
                if position != len(block):
                    return False
        except (ValueError, IndexError):
            return False
        return True

    def entries(self, *, with_bounds: bool = False, whole: bool = False) -> Iterator[DecodedEntry]:
        """Every entry, DELETED ones included.

        `with_bounds` adds the column bounds, which name the paths of position deletes, and the counts of values and of NULLs. `whole` adds
        the bytes of `data_file`, and leaves out what only plans ask for.
        """
        left_out = _ONLY_PLANNED if whole else () if with_bounds else _OF_COLUMNS
        return map(DecodedEntry._make, self._values(left_out, whole))

    def paths(self) -> Iterator[tuple[int, str]]:
        """The status and the path of every entry, DELETED ones included. Nothing else of the entries is decoded."""
        return map(_STATUS_AND_PATH, self._values(_ALL_BUT_PATHS))

    def _values(self, left_out: Sequence[str], whole: bool = False) -> Iterator[list[Any]]:
        """The slots of every entry."""
        plan = _plan(self._frame.meta["avro.schema"], left_out)
        for records, block in self._frame.contents(self._content):
            position = 0
            for _ in range(records):
                values, position = plan.entry(block, position, whole)
                yield values
            if position != len(block):
                raise DamagedAvro(f"{records} entries end at byte {position} of a block of {len(block)}")


_Chosen = list[tuple[int, int, _Read]]
"""For each slot that is read: the slot, the stop at which its value begins, and what reads it from there to the next stop."""


class _Plan:
    """How entries of one schema are decoded. Entries are made of three parts: what stands before the path, the path, and the rest.

    What stands before the path is the same in many entries. The path has another length in each, so it is measured; the rest has the same
    shape in many entries.
    """

    def __init__(self, fields: list[tuple[str | None, AvroType]], left_out: Sequence[str], first: int, behind: int) -> None:
        """`first` and `behind` are where the fields of `data_file` begin and end. Fields without a slot have no name."""
        places = {name: place for place, (name, _) in enumerate(fields) if name is not None and name not in left_out}
        missing = [name for name in _REQUIRED if name not in places and name not in left_out]
        if missing:
            raise UnknownAvro(f"its schema lacks {', '.join(missing)}, which the Iceberg specification requires")
        path = places["path"]
        if type_name(fields[path][1]) != "string" or path < first:
            raise UnknownAvro("its schema holds a path that is no text in a data file, which the Iceberg specification requires")
        kinds = [kind for _, kind in fields]
        self._none: list[Any] = [None] * len(DecodedEntry._fields)
        self._path_slot = DecodedEntry._fields.index("path")
        self._head, self._head_chosen = self._part(kinds, places, 0, path, first)
        self._rest, self._rest_chosen = self._part(kinds, places, path + 1, len(kinds), behind)
        self._first_stop = self._stops_of_head.index(first)
        self._behind_stop = self._stops_of_rest.index(behind - path - 1)
        self._heads: dict[bytes, tuple[list[Any], int]] = {}

    def _part(self, kinds: list[AvroType], places: Mapping[str, int], start: int, end: int, beside: int) -> tuple[Shapes, _Chosen]:
        """The shapes of the fields from `start` to `end`, and how their slots are read. `beside` is a place that is asked for, too."""
        inner = {name: place for name, place in places.items() if start <= place < end}
        stops = sorted({0, end - start, beside - start, *(place + step - start for place in inner.values() for step in (0, 1))})
        if start:
            self._stops_of_rest = stops
        else:
            self._stops_of_head = stops
        slots = {name: slot for slot, name in enumerate(DecodedEntry._fields)}
        chosen = [
            (slots[name], stops.index(place - start), _sliced if name == "partition" else _reader(kinds[place]))
            for name, place in inner.items()
        ]
        return Shapes(kinds[start:end], stops), chosen

    def entry(self, block: bytes, position: int, whole: bool) -> tuple[list[Any], int]:
        """The slots of the entry that begins at `position`, and the place behind it."""
        stops = self._head.places(block, position)
        begin = stops[-1][0]
        head = block[position:begin]
        known = self._heads.get(head)
        if known is None:
            known = self._read_head(head, block, position, stops)
        values = known[0].copy()
        length, start = read_long(block, begin)
        end = start + length
        if length < 0 or end > len(block):
            raise DamagedAvro(f"it ends after {len(block)} bytes, inside of a path: it was cut")
        values[self._path_slot] = block[start:end].decode()
        stops = self._rest.places(block, end)
        for slot, stop, read in self._rest_chosen:
            values[slot] = read(block, stops[stop][0], stops[stop + 1][0])
        if whole:
            values[-1] = block[position + known[1] : stops[self._behind_stop][0]]
        return values, stops[-1][0]

    def _read_head(self, head: bytes, block: bytes, position: int, stops: Places) -> tuple[list[Any], int]:
        values = self._none.copy()
        for slot, stop, read in self._head_chosen:
            values[slot] = read(block, stops[stop][0], stops[stop + 1][0])
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        known = self._heads[head] = values, stops[self._first_stop][0] - position
        return known


_MOST_HEADS = 4096
"""Each commit has a head of its own. What a plan keeps of them must not grow for ever."""


@lru_cache(maxsize=64)
def _plan(schema: bytes, left_out: Sequence[str]) -> _Plan:
    """How entries of this schema are decoded, without the slots that are left out. Raises UnknownAvro."""
    fields: list[tuple[str | None, AvroType]] = []
    first = behind = 0
    for field in _plain(schema)["fields"]:
        if field.get("field-id") == _DATA_FILE:
            first = len(fields)
            fields += [(_FILE_SLOTS.get(each.get("field-id")), each["type"]) for each in field["type"]["fields"]]
            behind = len(fields)
        else:
            fields.append((_ENTRY_SLOTS.get(field.get("field-id")), field["type"]))
    return _Plan(fields, left_out, first, behind)


@lru_cache(maxsize=64)
def _plain(schema: bytes) -> AvroType:
    """The plain schema of these bytes. Manifests of one writer have the same, so what is made for it is made once. Nobody changes it."""
    return plain_schema(json.loads(schema))


def _is_plain_fixed(field: Mapping[str, Any]) -> bool:
    """Whether a fixed type is neither a decimal nor a UUID, which are fixed too."""
    kind = nullable(field["type"])[0]
    return type_name(kind) == "fixed" and "logical" not in kind


def _of_id(record: AvroType, number: int) -> AvroType:
    for field in record["fields"] if type_name(record) == "record" else ():
        if field.get("field-id") == number:
            if type_name(field["type"]) != "record":
                raise UnknownAvro(f"field id {number} of its schema is {type_name(field['type'])} but must be a record")
            return field["type"]
    raise UnknownAvro(f"its schema lacks the field id {number}, which the Iceberg specification requires of an entry")


def _sliced(content: bytes, start: int, end: int) -> bytes:
    return content[start:end]


def _reader(kind: AvroType) -> _Read:
    """A function that reads a value: whole numbers, text, bytes, lists of numbers, maps of numbers, and optional ones of these."""
    inner, null = nullable(kind)
    read = _value(inner)
    if null is None and read is _integer:
        return _integer_between
    if null is None:
        return lambda content, start, end: read(content, start)
    is_null = null << 1
    return lambda content, start, end: None if content[start] == is_null else read(content, start + 1)


def _value(kind: AvroType) -> _Value:
    name = type_name(kind)
    if name in ("int", "long"):
        return _integer
    if name == "string":
        return _text
    if name == "bytes":
        return read_bytes
    if name == "array":
        return _pairs(kind) if type_name(kind["items"]) == "record" else _numbers(kind)
    raise UnknownAvro(f"its schema holds {name!r} where the Iceberg specification has a number, text, bytes or a list")


def _integer(content: bytes, position: int) -> int:
    byte = content[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1)
    return read_long(content, position)[0]


def _integer_between(content: bytes, position: int, end: int) -> int:
    return read_long(content, position)[0]


def _text(content: bytes, position: int) -> str:
    length, start = read_long(content, position)
    return content[start : start + length].decode()


def _numbers(kind: AvroType) -> _Value:
    # By the specification no item may be null. Some writers declare items as optional anyway, and Java reads that.
    element, null = nullable(kind["items"])
    if type_name(element) not in ("int", "long"):
        raise UnknownAvro(f"its schema holds a list of {type_name(element)!r} where the Iceberg specification has one of numbers")

    def read(content: bytes, position: int) -> list[int]:
        if null is None:
            return [_integer(content, place) for place, _ in items(kind, content, position)]
        places = [place for place, _ in items(kind, content, position)]
        if any(content[place] == null << 1 for place in places):
            raise DamagedAvro("a list of numbers holds a null")
        return [_integer(content, place + 1) for place in places]

    return read


def _pairs(kind: AvroType) -> _Value:
    fields = kind["items"]["fields"]
    key, value = (type_name(field["type"]) for field in fields) if len(fields) == 2 else ("", "")
    read_value: _Value | None = {"bytes": read_bytes, "long": _integer}.get(value)
    if key != "int" or read_value is None:
        raise UnknownAvro("its schema has bounds or counts of columns that are no map of numbers, as the Iceberg specification wants them")

    def read(content: bytes, position: int) -> dict[int, Any]:
        pairs = {}
        for place, _ in items(kind, content, position):
            number, start = read_long(content, place)
            pairs[number] = read_value(content, start)
        return pairs

    return read
