"""Decodes of a manifest's entries only what planning asks for, several times as fast as whole entries.

Most of an entry are counts and bounds of columns, which no plan looks at: they are skipped by the run, not value by value. Whoever
carries an entry over into another manifest reads it whole (`manifests.read_entries`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from compaction_pipeline.iceberg.avro_frames import read_frame

_Read = Callable[[BinaryDecoder], Any]

_DATA_FILE = 2
_PARTITION = 102


class DecodedEntry(NamedTuple):
    """One entry as the manifest says it: nothing is inherited yet. What the file does not have is None.

    `partition` are the values in the order of the manifest's own type.
    """

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    content: int | None
    path: str
    format: str
    partition: tuple[Any, ...] | None
    record_count: int
    file_size_bytes: int
    lower_bounds: Mapping[int, bytes] | None
    upper_bounds: Mapping[int, bytes] | None
    key_metadata: bytes | None
    equality_ids: Sequence[int] | None
    sort_order_id: int | None
    referenced_data_file: str | None


_ENTRY_SLOTS = {0: "status", 1: "snapshot_id", 3: "sequence_number"}
_FILE_SLOTS = {
    134: "content",
    100: "path",
    101: "format",
    102: "partition",
    103: "record_count",
    104: "file_size_bytes",
    125: "lower_bounds",
    128: "upper_bounds",
    131: "key_metadata",
    135: "equality_ids",
    140: "sort_order_id",
    143: "referenced_data_file",
}
"""Field ids of the spec's manifest entry and data file, and the slots that they are read into."""


def decode_entries(content: bytes, *, with_bounds: bool) -> Iterator[DecodedEntry]:
    """The entries of a manifest file, DELETED ones included. `with_bounds`: column bounds too (they name the paths of position deletes).

    ValueError, or whatever else a decoder does with bytes that are not Avro, for a file that is corrupt.
    """
    frame = read_frame(content)
    schema = AvroSchemaConversion().avro_to_iceberg(json.loads(frame.meta["avro.schema"]))
    names, readers = _plan(schema.as_struct(), with_bounds)
    missing = len(names)
    in_slots = itemgetter(*(names.index(name) if name in names else missing for name in DecodedEntry._fields))
    for records, block in frame.contents(content):
        decoder = new_decoder(block)
        for _ in range(records):
            values = [read(decoder) for read in readers]
            values.append(None)
            yield DecodedEntry._make(in_slots(values))
        if decoder.tell() != len(block):
            raise ValueError(f"{records} entries end at byte {decoder.tell()} of a block of {len(block)}")


def _plan(entry: StructType, with_bounds: bool) -> tuple[list[str | None], list[_Read]]:
    """Slot (None: skipped) and reader of each field, in the order of the file; those of `data_file` stand in its place."""
    wanted = _FILE_SLOTS if with_bounds else {key: name for key, name in _FILE_SLOTS.items() if not name.endswith("_bounds")}
    names: list[str | None] = []
    readers: list[_Read] = []
    for field in entry.fields:
        inner = field.field_type.fields if field.field_id == _DATA_FILE and isinstance(field.field_type, StructType) else None
        for each, slots in [(field, _ENTRY_SLOTS)] if inner is None else [(each, wanted) for each in inner]:
            name = slots.get(each.field_id)
            names.append(name)
            readers.append(_skip(each) if name is None else _read(each))
    return names, readers


def _read(field: NestedField) -> _Read:
    kind = field.field_type
    if field.field_id == _PARTITION and isinstance(kind, StructType):
        return _tuple_of([_read(each) for each in kind.fields])
    read = _value(kind)
    return read if field.required else _optional(read)


def _value(kind: IcebergType) -> _Read:
    # A method called from C spares a frame of Python for each value.
    if isinstance(kind, (IntegerType, LongType)):
        return methodcaller("read_int")
    if isinstance(kind, StringType):
        return methodcaller("read_utf8")
    reader: _Read = construct_reader(kind).read
    return reader


def _tuple_of(reads: list[_Read]) -> _Read:
    return lambda decoder: tuple([read(decoder) for read in reads])


def _optional(read: _Read) -> _Read:
    # Iceberg's unions have null first (spec: "Avro").
    return lambda decoder: read(decoder) if decoder.read_int() > 0 else None


def _skip(field: NestedField) -> _Read:
    kind = field.field_type
    if isinstance(kind, MapType) and _is_whole(kind.key_type):
        if _is_whole(kind.value_type) and kind.value_required:
            return _skipping(field, lambda decoder, count: decoder.read_ints(2 * count))
        if kind.value_required and str(kind.value_type) == "binary":
            return _skipping(field, lambda decoder, count: decoder.read_int_bytes_dict(count, {}))
    if isinstance(kind, ListType) and _is_whole(kind.element_type) and kind.element_required:
        return _skipping(field, lambda decoder, count: decoder.read_ints(count))
    skip: _Read = construct_reader(kind).skip
    return skip if field.required else _optional(skip)


def _skipping(field: NestedField, run: Callable[[BinaryDecoder, int], object]) -> _Read:
    """Skip an array or map of which `run` reads so many items."""
    optional = field.optional

    def skip(decoder: BinaryDecoder) -> None:
        if optional and decoder.read_int() <= 0:
            return
        while (count := decoder.read_int()) != 0:
            if count < 0:
                # The size of the run in bytes stands in front of it.
                decoder.skip(decoder.read_int())
            else:
                run(decoder, count)

    return skip


def _is_whole(kind: IcebergType) -> bool:
    return isinstance(kind, (IntegerType, LongType))
