"""Column metrics of a written file, in the form in which its manifest entry carries them (spec: `data_file`, appendix D).

Readers skip equality deletes because of bounds and null counts, so a wrong one revives rows. A count is therefore exact or absent, and a
bound is a true bound. The modes are the table's `write.metadata.metrics.*`, resolved as in Iceberg's Java code.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string

from compaction_pipeline.core.errors import MergeFailed
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.formats.parquet.leaves import Leaf, leaves
from compaction_pipeline.merging.deletes.positions import PATH_FIELD
from compaction_pipeline.merging.reading.read import chunk_start

DEFAULT_MODE = "truncate(16)"
DEFAULT_INFERRED_COLUMNS = 100
_FULL = 1 << 62
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000


@dataclass(frozen=True)
class MetricsModes:
    """What is kept of each column: nothing (None), counts (0), or bounds of at most this many characters or bytes."""

    by_id: Mapping[int, int | None]

    @classmethod
    def of(cls, schema: Schema, properties: Mapping[str, str], sort_column_ids: frozenset[int] = frozenset()) -> MetricsModes:
        """Resolve `write.metadata.metrics.*`. Raises MergeFailed for a mode that does not exist."""
        prefix = "write.metadata.metrics."
        default = properties.get(prefix + "default")
        limit = int(properties.get(prefix + "max-inferred-column-defaults", DEFAULT_INFERRED_COLUMNS))
        modes: dict[int, int | None] = {}
        for index, leaf in enumerate(leaves(schema)):
            key = f"{prefix}column.{leaf.name}"
            # If the table sets no default, only the first columns get metrics, because those of a very wide table would be too many.
            inferred = default or (DEFAULT_MODE if index < limit else "none")
            mode = _mode(properties.get(key, inferred), key)
            if leaf.field_id in sort_column_ids and key not in properties and not mode:
                mode = _mode(DEFAULT_MODE, key)
            modes[leaf.field_id] = mode
        return cls(modes)


def _mode(text: str, key: str) -> int | None:
    cleaned = text.strip().lower()
    if cleaned == "none":
        return None
    if cleaned in ("counts", "full"):
        return 0 if cleaned == "counts" else _FULL
    if cleaned.startswith("truncate(") and cleaned.endswith(")") and cleaned[9:-1].isdigit() and int(cleaned[9:-1]) > 0:
        return int(cleaned[9:-1])
    raise MergeFailed(f"{key!r} is {text!r} but must be none, counts, truncate(n) with n ≥ 1, or full; correct the table property")


def footer_bytes(metadata: pq.FileMetaData) -> int:
    """The length of the footer that was written with this metadata. PyArrow does not tell it of a file that it has just written."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    # Such a file is the footer between the magic bytes, with its length.
    return int(sink.tell()) - 12


def with_metrics(output: OutputFile, metadata: Any, columns: list[Leaf], modes: MetricsModes, nans: Mapping[int, int]) -> OutputFile:
    """The description of a file with its metrics. They come from its Parquet footer, and from `nans`, its number of NaN by field id
    (`NanCounter`)."""
    sizes, values, nulls = dict[int, int](), dict[int, int](), dict[int, int]()
    bounds: dict[int, tuple[str, str | None]] = {}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for index, leaf in enumerate(columns):
        chunks = [group.column(index) for group in groups]
        number = leaf.field_id
        sizes[number] = sum(chunk.total_compressed_size for chunk in chunks)
        mode = modes.by_id.get(number)
        if mode is None:
            continue
        values[number] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if all(each is not None and each.has_null_count for each in statistics):
            nulls[number] = sum(each.null_count for each in statistics)
        found = _bounds(leaf, mode, chunks, statistics) if mode and may_have_bounds(leaf.type, nans.get(number)) else None
        if found is not None:
            bounds[number] = found
    if not output.is_data:
        # Parquet keeps no statistics of values longer than 4 KiB. All rows hold one path, so its bounds are known without statistics.
        whole = (output.referenced_data_file or "").encode().hex()
        bounds[PATH_FIELD.field_id] = (whole, whole)
    return replace(
        output,
        column_sizes=sizes,
        value_counts=values,
        null_value_counts=nulls,
        nan_value_counts=dict(nans),
        lower_bounds={number: lower for number, (lower, _) in bounds.items()},
        upper_bounds={number: upper for number, (_, upper) in bounds.items() if upper is not None},
        split_offsets=tuple(sorted(chunk_start(group.column(0)) for group in groups)) if metadata.num_columns else (),
    )


def may_have_bounds(kind: IcebergType, nans: int | None) -> bool:
    """Whether a file may claim bounds for a column of this type with this number of NaN. `nans` is None if nobody counted them.

    Java skips an equality delete if the bounds of its values lie outside of the bounds of the data file's column.

    - Bounds leave NaN out. If the column had bounds, a delete of NaN would no longer reach the rows that are NaN.
    - Parquet orders UUIDs by unsigned bytes, and Java as two signed numbers. Java would skip deletes because of bounds that are true.
    """
    if isinstance(kind, (FloatType, DoubleType)):
        return nans == 0
    return not isinstance(kind, UUIDType)


def _bounds(leaf: Leaf, mode: int, chunks: list[Any], statistics: list[Any]) -> tuple[str, str | None] | None:
    """The (lower, upper) bound of a column; None when the file gets none. They are the hex text of the spec's binary single-value
    serialization."""
    present = [
        each
        for chunk, each in zip(chunks, statistics, strict=True)
        if each is None or not each.has_null_count or each.null_count < chunk.num_values
    ]
    # If a row group holds values but no bounds, the file gets none. This is so if all values are NaN, if they are longer than Parquet's
    # limit, or if the row group was copied from a file without bounds.
    if leaf.repeated or not present or any(each is None or not each.has_min_max for each in present):
        return None
    low = min((_raw(leaf.type, each.min_raw) for each in present), key=lambda pair: pair[0])
    high = max((_raw(leaf.type, each.max_raw) for each in present), key=lambda pair: pair[0])
    lower, upper = low[1], _upper(leaf.type, high[1], mode)
    if isinstance(leaf.type, StringType):
        lower = lower.decode()[:mode].encode()
    elif isinstance(leaf.type, BinaryType):
        lower = lower[:mode]
    return lower.hex(), upper.hex() if upper is not None else None


def _upper(kind: PrimitiveType, value: bytes, width: int) -> bytes | None:
    if isinstance(kind, StringType):
        text = value.decode()
        if len(text) <= width:
            return value
        return _above(text[:width])
    if isinstance(kind, BinaryType) and len(value) > width:
        return truncate_upper_bound_binary_string(value, width)
    return value


def _above(text: str) -> bytes | None:
    """The lowest text that sorts above every text that starts with `text` and is no longer than `text`. None if there is no such text."""
    for end in range(len(text), 0, -1):
        following = ord(text[end - 1]) + 1
        # Surrogates are no characters, and UTF-8 has no bytes for them.
        following = _AFTER_SURROGATES if following == _FIRST_SURROGATE else following
        if following <= sys.maxunicode:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _raw(kind: PrimitiveType, raw: Any) -> tuple[Any, bytes]:
    """A raw Parquet statistic as a value to compare by, and as its binary single-value serialization."""
    if isinstance(kind, DecimalType):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        length = max(1, (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1)
        return unscaled, unscaled.to_bytes(length, "big", signed=True)
    if isinstance(raw, (bytes, str)):
        data = raw.encode() if isinstance(raw, str) else bytes(raw)
        return data, data
    if isinstance(raw, bool):
        return raw, struct.pack("<?", raw)
    if isinstance(kind, FloatType):
        return raw, struct.pack("<f", raw)
    if isinstance(kind, DoubleType):
        return raw, struct.pack("<d", raw)
    return raw, struct.pack("<i" if str(kind) in ("int", "date") else "<q", raw)


def comparable(kind: PrimitiveType, raw: Any) -> Any:
    """A raw Parquet statistic of a column of this type, as a value that can be compared with others."""
    return _raw(kind, raw)[0]


class NanCounter:
    """Counts NaN in float columns, because Parquet's footer does not."""

    def __init__(self, schema: Schema, modes: MetricsModes) -> None:
        self._paths = [(leaf.field_id, path) for leaf, path in _float_paths(schema) if modes.by_id.get(leaf.field_id) is not None]
        self.counts: dict[int, int] = {number: 0 for number, _ in self._paths}

    @property
    def columns(self) -> frozenset[int]:
        """The top-level columns that have to be decoded for the counts."""
        return frozenset(path[0] for _, path in self._paths)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the NaN of a record batch or table."""
        for column in self.columns:
            self.add_column(column, batch.column(column))

    def add_column(self, top: int, column: pa.Array | pa.ChunkedArray) -> None:
        """Count the NaN of one top-level column."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for number, path in self._paths:
            if path[0] == top:
                self.counts[number] += sum(_nans(chunk, path[1:]) for chunk in chunks)


def _float_paths(schema: Schema) -> Iterator[tuple[Leaf, tuple[int, ...]]]:
    every = {leaf.field_id: leaf for leaf in leaves(schema)}
    for index, each in enumerate(schema.fields):
        for number, path in _paths(each.field_type, each.field_id, (index,)):
            if isinstance(every[number].type, (FloatType, DoubleType)):
                yield every[number], path


def _paths(kind: IcebergType, number: int, path: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    if isinstance(kind, StructType):
        for index, child in enumerate(kind.fields):
            yield from _paths(child.field_type, child.field_id, (*path, index))
    elif isinstance(kind, ListType):
        yield from _paths(kind.element_type, kind.element_id, (*path, 0))
    elif isinstance(kind, MapType):
        yield from _paths(kind.key_type, kind.key_id, (*path, 0))
        yield from _paths(kind.value_type, kind.value_id, (*path, 1))
    else:
        yield number, path


def _nans(array: pa.Array, path: tuple[int, ...]) -> int:
    values = _values(array, path)
    return 0 if values is None else int(pc.sum(pc.is_nan(values)).as_py() or 0)


def _values(array: pa.Array, path: tuple[int, ...]) -> pa.Array | None:
    """The values of a primitive column, which lies at this path in the array. None when there is none but NULLs."""
    if array.null_count == len(array):
        # Arrow cannot flatten such an array if a UUID is inside.
        return None
    if not path:
        return array
    if pa.types.is_struct(array.type):
        return _values(pc.struct_field(array, [path[0]]), path[1:])
    if pa.types.is_map(array.type):
        present = array.drop_null()
        low, high = present.offsets[0].as_py(), present.offsets[-1].as_py()
        return _values((present.items if path[0] else present.keys).slice(low, high - low), path[1:])
    return _values(pc.list_flatten(array), path[1:])


def bounds_of_bytes(table: pa.Table, schema: Schema, field_id: int) -> tuple[bytes, bytes] | None:
    """The lowest and the highest value of a column of texts or bytes, as Parquet orders them. None when there is none but NULLs."""
    places = (each for index, column in enumerate(schema.fields) for each in _paths(column.field_type, column.field_id, (index,)))
    top, *within = next(path for number, path in places if number == field_id)
    found = [values for chunk in table.column(top).chunks if (values := _values(chunk, tuple(within))) is not None]
    bounds = [pc.min_max(values.cast(pa.large_binary())).as_py() for values in found]
    return (min(each["min"] for each in bounds), max(each["max"] for each in bounds)) if bounds else None
