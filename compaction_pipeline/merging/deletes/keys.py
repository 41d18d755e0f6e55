"""Keys of equality deletes: their columns in a canonical form, and exact sets of them.

In the canonical form numbers, dates and times are 64-bit integers, floats are the bits of a double (with one NaN), and everything else is
bytes. So equal bytes mean equal values by Java's rules, even if a type was promoted in between. A set finds candidates by a 64-bit hash and
then compares the values themselves. An equal hash alone never deletes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, StructType

from compaction_pipeline.core.errors import MergeRefused
from compaction_pipeline.formats.hash_filter import HashFilter
from compaction_pipeline.formats.row_hashes import hash_columns
from compaction_pipeline.merging.reading.read import TableShape

_NAN_BITS = 0x7FF8000000000000
# Bytes that a key takes beside its columns: its hash, its sequence, the slots of the index, and the copies that exist while the set is
# built.
_KEY_OVERHEAD_BYTES = 120
_FILTER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class KeyColumns:
    """The columns of one set of `equality_ids`. `fields` are the top-level fields to read from a file, one for each id, and `paths` lead to
    the value inside each field.

    A whole struct may be a key. Two structs are equal if both are NULL, or if neither is and all their fields are equal.
    """

    ids: tuple[int, ...]
    fields: tuple[NestedField, ...]
    paths: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, ids: tuple[int, ...], shape: TableShape) -> KeyColumns:
        """Find the columns in the newest schemas that have them, because an equality column may have been dropped since."""
        found = [_key_field(number, shape.newest_with(number)) for number in ids]
        return cls(ids, tuple(field for field, _ in found), tuple(path for _, path in found))

    def canonical(self, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """The canonical values of the projected arrays, in the order of the ids. A struct gives a column that says whether it is NULL, then
        its fields."""
        values = (pc.struct_field(array, list(path)) if path else array for array, path in zip(arrays, self.paths, strict=True))
        return [column for value in values for column in _flat(value)]

    def estimated_bytes(self, records: int, file_size_bytes: int) -> int:
        """How many bytes of memory a set of a delete file's keys is estimated to take. Compressed text is assumed to expand threefold."""
        columns = sum(_columns(field.field_type) for field in self.fields)
        return records * (_KEY_OVERHEAD_BYTES + 16 * columns) + 2 * 3 * file_size_bytes


def _key_field(number: int, schema: Schema) -> tuple[NestedField, tuple[int, ...]]:
    """The top-level field that holds the id, and the path to it. The field is reduced to this path, and all of it is optional."""
    for top in schema.fields:
        way = _way(top, number)
        if way is not None:
            return way
    raise MergeRefused(f"equality field id {number} lies inside a list or map, which the Iceberg spec does not allow")


def _way(field: NestedField, number: int) -> tuple[NestedField, tuple[int, ...]] | None:
    if field.field_id == number:
        return _comparable(field, number), ()
    if isinstance(field.field_type, StructType):
        for child in field.field_type.fields:
            way = _way(child, number)
            if way is not None:
                return _optional(field, StructType(way[0])), (0, *way[1])
    return None


def _comparable(field: NestedField, number: int) -> NestedField:
    """The field with everything in it made optional. Raises MergeRefused for a list or map, because Iceberg does not compare these."""
    kind = field.field_type
    if isinstance(kind, StructType):
        return _optional(field, StructType(*(_comparable(child, number) for child in kind.fields)))
    if not isinstance(kind, PrimitiveType):
        raise MergeRefused(
            f"equality field id {number} is or holds a {kind}, whose values cannot be compared; rewrite the delete by other columns"
        )
    return _optional(field, kind)


def _columns(kind: IcebergType) -> int:
    return 1 + sum(_columns(field.field_type) for field in kind.fields) if isinstance(kind, StructType) else 1


def _flat(array: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_struct(array.type):
        yield canonical(array)
        return
    yield array.is_valid().cast(pa.int64())
    for index in range(array.type.num_fields):
        yield from _flat(pc.struct_field(array, [index]))


def _optional(field: NestedField, kind: PrimitiveType | StructType) -> NestedField:
    # A file may lack a column that a later schema requires. For a comparison such a column is NULL.
    return NestedField(field.field_id, field.name, kind, required=False, initial_default=field.initial_default)


def canonical(array: pa.Array) -> pa.Array:
    """The values of an array as int64 or binary. They are equal if Java's comparison says that the values are equal."""
    arrow = array.type
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return canonical(array.storage)
    if types.is_floating(arrow):
        doubles = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        bits = doubles.view(np.int64)
        nan = np.isnan(doubles)
        if nan.any():
            bits = np.where(nan, np.int64(_NAN_BITS), bits)
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(bits, pa.int64(), mask=mask)
    if types.is_boolean(arrow) or types.is_integer(arrow):
        return array.cast(pa.int64())
    if types.is_date(arrow):
        return array.cast(pa.int32()).cast(pa.int64())
    if types.is_timestamp(arrow) or types.is_time64(arrow):
        return array.cast(pa.int64())
    if types.is_decimal(arrow):
        wide = array.cast(pa.decimal128(38, arrow.scale))
        return wide.view(pa.binary(16)).cast(pa.binary())
    return array.cast(pa.binary())


def hashes_of(columns: Sequence[pa.Array], length: int, seed: int) -> NDArray[np.uint64]:
    """The hashes of canonical keys."""
    return hash_columns(enumerate(columns), length, seed)


class KeySetBuilder:
    """Collects keys, each with the sequence number of the delete file that holds it."""

    def __init__(self) -> None:
        self._columns: list[list[pa.Array]] = []
        self._sequences: list[NDArray[np.int64]] = []

    def add(self, columns: Sequence[pa.Array], sequences: NDArray[np.int64]) -> None:
        self._columns.append(list(columns))
        self._sequences.append(sequences)

    def build(self) -> KeySet:
        """Build the set. The builder then releases its own copies."""
        if not self._columns:
            return KeySet([], np.empty(0, dtype=np.int64))
        count = len(self._columns[0])
        columns = []
        for number in range(count):
            columns.append(_joined([batch[number] for batch in self._columns]))
            for batch in self._columns:
                batch[number] = None
        sequences = np.concatenate(self._sequences)
        self._columns, self._sequences = [], []
        return KeySet(columns, sequences)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    # Offsets of 32 bits can address 2 GiB of text. A larger set of keys needs offsets of 64 bits.
    if pa.types.is_binary(arrays[0].type) and sum(array.nbytes for array in arrays) > 1 << 30:
        arrays = [array.cast(pa.large_binary()) for array in arrays]
    return pa.concat_arrays(arrays)


class KeySet:
    """Distinct keys in the order of their hashes. Each has the highest sequence number of a delete that holds it.

    The set takes over `columns` and changes the list.
    """

    def __init__(self, columns: list[pa.Array], sequences: NDArray[np.int64], seed: int = 0) -> None:
        while (distinct := _distinct(columns, sequences, seed)) is None:
            # Two different keys have one hash. Another seed gives them different hashes.
            seed += 1
        chosen, self._hashes, self._sequences = distinct
        self._seed = seed
        for number, column in enumerate(columns):
            columns[number] = column.take(pa.array(chosen))
        self._columns = columns
        # The highest bits of a hash say roughly where it stands in the sorted hashes. There are as many ranges as keys, or up to twice as
        # many.
        bits = max(len(chosen).bit_length(), 1)
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((self._hashes >> self._shift).view(np.int64), minlength=1 << bits)
        self._longest = int(counts.max())
        self._starts = np.zeros((1 << bits) + 1, dtype=np.int32 if len(chosen) < 1 << 31 else np.int64)
        np.cumsum(counts, out=self._starts[1:])
        self._filter = HashFilter(len(chosen), _FILTER_BYTES)
        self._filter.add_sorted(self._hashes)

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        numbers = self._hashes.nbytes + self._sequences.nbytes + self._starts.nbytes + self._filter.nbytes
        return numbers + sum(int(column.nbytes) for column in self._columns)

    def matches(self, columns: Sequence[pa.Array], length: int, sequence: int | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows the keys delete. `columns` are canonical, and `sequence` is the data sequence number of the rows' file, or of each
        row."""
        found = np.zeros(length, dtype=bool)
        if not len(self) or not length:
            return found
        hashes = hashes_of(columns, length, self._seed)
        # Most rows are not deleted. To ask a small filter first is far cheaper than to look into the keys.
        rows = np.flatnonzero(self._filter.may_hold(hashes))
        at, there = self._found(hashes[rows])
        older_than = sequence[rows] if isinstance(sequence, np.ndarray) else sequence
        hit = there & (self._sequences[at] > older_than)
        rows, at = rows[hit], at[hit]
        if len(rows):
            found[rows[_equal(columns, rows, self._columns, at)]] = True
        return found

    def _found(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The place of each hash among the keys' hashes, and whether it is there."""
        last = len(self._hashes) - 1
        at = self._starts[(hashes >> self._shift).view(np.int64)].astype(np.int64)
        for _ in range(self._longest):
            less = self._hashes[np.minimum(at, last)] < hashes
            if not less.any():
                break
            at += less
        at = np.minimum(at, last)
        return at, self._hashes[at] == hashes


_Distinct = tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]


def _distinct(columns: Sequence[pa.Array], sequences: NDArray[np.int64], seed: int) -> _Distinct | None:
    """For each distinct key, in the order of the hashes: one row that holds it, its hash, and its highest sequence number.

    None if two different keys have one hash.
    """
    length = len(sequences)
    hashes = hashes_of(columns, length, seed)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    first = np.ones(length, dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    if first.all():
        return order, hashes, sequences[order]
    starts = np.flatnonzero(first)
    chosen = order[starts]
    stands_for = chosen[np.cumsum(first)[~first] - 1]
    if not _equal(columns, order[~first], columns, stands_for).all():
        return None
    return chosen, hashes[starts], np.maximum.reduceat(sequences[order], starts)


def _equal(left: Sequence[pa.Array], rows: NDArray[np.int64], right: Sequence[pa.Array], keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether row `rows[i]` of `left` equals row `keys[i]` of `right`, for each i. NULL equals NULL."""
    same = np.ones(len(rows), dtype=bool)
    for a, b in zip(left, right, strict=True):
        one, other = a.take(pa.array(rows)), b.take(pa.array(keys))
        if one.type != other.type:
            one = one.cast(other.type)
        equal = pc.equal(one, other)
        both_null = pc.and_(one.is_null(), other.is_null())
        same &= pc.or_(equal.fill_null(False), both_null).to_numpy(zero_copy_only=False)
    return same
