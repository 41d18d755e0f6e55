"""Projects the columns of a data file to an Iceberg schema, by field id (spec: "Column Projection", "Schema Evolution").

Invariant: a column is found only by its id, whatever its name or place. A type change that the spec does not allow is an error, never a
cast. Structs, lists and maps are projected inside, too. Source types are those that PyArrow reads from Parquet; target types are
`arrow_schema` of the Iceberg schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.errors import MergeFailed, MergeRefused
from compaction_pipeline.formats.arrow_fields import FIELD_ID_KEY, children, field_id, is_list
from compaction_pipeline.merging.single_values import internal_value
from compaction_pipeline.merging.writing.transforms import Convert

Constants = Mapping[int, pa.Scalar | None]
"""Values of columns that a file may lack, by field id. None is NULL."""
TEXT_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
"""The type in which PyArrow reads dictionary-encoded text, if asked to."""

_SIMPLE: Mapping[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
}


def arrow_type(iceberg_type: IcebergType) -> pa.DataType:
    """The Arrow type in which a column of an Iceberg v2 type is merged and written. Nested fields carry their ids in their metadata."""
    if isinstance(iceberg_type, StructType):
        return pa.struct([arrow_field(field) for field in iceberg_type.fields])
    if isinstance(iceberg_type, ListType):
        return pa.list_(arrow_field(iceberg_type.element_field))
    if isinstance(iceberg_type, MapType):
        return pa.map_(arrow_field(iceberg_type.key_field), arrow_field(iceberg_type.value_field))
    if isinstance(iceberg_type, FixedType):
        return pa.binary(len(iceberg_type))
    if isinstance(iceberg_type, DecimalType):
        return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
    simple = _SIMPLE.get(type(iceberg_type))
    if simple is None:
        raise MergeRefused(f"type {iceberg_type} is not an Iceberg v2 type; the table cannot be compacted until it is supported")
    return simple


def arrow_field(field: NestedField) -> pa.Field:
    """An Arrow field that carries the Iceberg field's name, id and nullability."""
    return pa.field(
        field.name, arrow_type(field.field_type), nullable=field.optional, metadata={FIELD_ID_KEY: str(field.field_id).encode()}
    )


def arrow_schema(fields: Iterable[NestedField]) -> pa.Schema:
    """The Arrow schema in which rows of these Iceberg fields are merged and written."""
    return pa.schema([arrow_field(field) for field in fields])


def has_ids(fields: Iterable[pa.Field]) -> bool:
    """True when any field, at any depth, carries an id."""
    return any(field_id(field) is not None or has_ids(children(field.type)) for field in fields)


def identified(schema: pa.Schema, name_mapping: NameMapping | None, path: str) -> pa.Schema:
    """The file's Arrow schema with field ids: its own ids or, if it has none at all, those of the name mapping.

    Raises MergeRefused for a file without ids in a table without a name mapping. Guessing columns by their position could mix them up.
    """
    if has_ids(schema):
        return schema
    if name_mapping is None:
        raise MergeRefused(
            f"file {path} carries no field ids and the table has no 'schema.name-mapping.default'; set one, so that its columns are known"
        )
    mapped = name_mapping.root
    return pa.schema([_with_id(field, mapped, field.name) for field in schema])


def _with_id(field: pa.Field, mapping: Sequence[MappedField], name: str) -> pa.Field:
    entry = next((mapped for mapped in mapping if name in mapped.names), None)
    inner: Sequence[MappedField] = entry.fields if entry is not None else ()
    arrow = field.type
    if pa.types.is_struct(arrow):
        arrow = pa.struct([_with_id(child, inner, child.name) for child in children(arrow)])
    elif is_list(arrow):
        arrow = pa.list_(_with_id(arrow.value_field, inner, "element"))
    elif pa.types.is_map(arrow):
        arrow = pa.map_(_with_id(arrow.key_field, inner, "key"), _with_id(arrow.item_field, inner, "value"))
    metadata = {FIELD_ID_KEY: str(entry.field_id).encode()} if entry is not None and entry.field_id is not None else None
    return pa.field(field.name, arrow, nullable=field.nullable, metadata=metadata)


@dataclass(frozen=True)
class _Column:
    """One target column. It is source column `name`, changed by `convert`. If `name` is None it is `constant`, and a constant of None is
    NULL."""

    name: str | None
    convert: Convert
    constant: pa.Scalar | None
    field: pa.Field


class Projection:
    """Turns record batches of one file into rows of the target fields. It is compiled once for each file."""

    def __init__(
        self, source: pa.Schema, fields: Sequence[NestedField], constants: Constants, path: str, *, keep_dictionaries: bool = False
    ) -> None:
        """`source` is the file's schema with ids (`identified`). `constants` are Arrow scalars by field id, for columns that the file may
        lack.

        With `keep_dictionaries`, text that is read as Arrow dictionaries stays in this form, and `schema` says so. Without it, it is
        decoded.
        """
        by_id = {field_id(field): field for field in source if field_id(field) is not None}
        self._columns = [
            self._column(by_id.get(field.field_id), field, constants, arrow_field(field), path, keep_dictionaries) for field in fields
        ]
        self.schema = pa.schema([column.field for column in self._columns])

    @staticmethod
    def _column(
        source: pa.Field | None, field: NestedField, constants: Constants, target: pa.Field, path: str, keep_dictionaries: bool
    ) -> _Column:
        where = f"column {field.name!r} of file {path}"
        if source is not None:
            if keep_dictionaries and source.type == TEXT_DICTIONARY and isinstance(field.field_type, StringType):
                return _Column(source.name, _identity, None, target.with_type(TEXT_DICTIONARY))
            return _Column(source.name, _converter(source.type, field.field_type, where), None, target)
        if field.field_id in constants:
            return _Column(None, _identity, constants[field.field_id], target)
        return _Column(None, _identity, _default(field, where), target)

    @property
    def source_columns(self) -> list[str]:
        """Names of the file's columns that the projection reads."""
        return [column.name for column in self._columns if column.name is not None]

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The target columns of a batch."""
        return [
            column.convert(batch.column(column.name)) if column.name is not None else _repeated(column, batch.num_rows)
            for column in self._columns
        ]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch's rows in the target schema."""
        return pa.RecordBatch.from_arrays(self.arrays(batch), schema=self.schema)


def constant(iceberg_type: IcebergType, value: object) -> pa.Scalar | None:
    """The Arrow scalar of a single-value JSON (spec, appendix D). None for NULL. For a UUID the scalar has the storage type."""
    if value is None:
        return None
    if not isinstance(iceberg_type, PrimitiveType):
        raise MergeRefused(f"a constant of type {iceberg_type} is not possible: only primitive types have single values")
    python = internal_value(iceberg_type, value)
    if isinstance(iceberg_type, UUIDType):
        return pa.scalar(getattr(python, "bytes", python), pa.binary(16))
    return pa.scalar(python, arrow_type(iceberg_type))


def _default(field: NestedField, where: str) -> pa.Scalar | None:
    if field.initial_default is not None:
        return constant(field.field_type, field.initial_default)
    if field.required:
        raise MergeRefused(f"{where} is required, but the file lacks it and the schema gives no initial default")
    return None


def _repeated(column: _Column, length: int) -> pa.Array:
    arrow = column.field.type
    if column.constant is None:
        return _nulls(arrow, length)
    values = pa.repeat(column.constant, length)
    return pa.ExtensionArray.from_storage(arrow, values) if isinstance(arrow, pa.BaseExtensionType) else values


def _nulls(arrow: pa.DataType, length: int) -> pa.Array:
    """NULLs of a type. In a struct that is NULL, required fields get some value, because Arrow wants one even there."""
    if not pa.types.is_struct(arrow):
        return pa.nulls(length, arrow)
    inner = [_nulls(child.type, length) if child.nullable else _any_value(child.type, length) for child in children(arrow)]
    return pa.StructArray.from_arrays(inner, fields=children(arrow), mask=pa.repeat(True, length))


def _any_value(arrow: pa.DataType, length: int) -> pa.Array:
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow, _any_value(arrow.storage_type, length))
    if pa.types.is_struct(arrow):
        return pa.StructArray.from_arrays([_any_value(child.type, length) for child in children(arrow)], fields=children(arrow))
    if is_list(arrow) or pa.types.is_map(arrow):
        return pa.array([[]] * length, arrow)
    if pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow):
        return pa.Array.from_buffers(arrow, length, [None, _zeros(8 * (length + 1)), _zeros(0)])
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return pa.Array.from_buffers(arrow, length, [None, _zeros(4 * (length + 1)), _zeros(0)])
    return pa.Array.from_buffers(arrow, length, [None, _zeros(-(-arrow.bit_width * length // 8))])


def _zeros(count: int) -> pa.Buffer:
    return pa.py_buffer(bytes(count))


def _identity(array: pa.Array) -> pa.Array:
    return array


def _converter(source: pa.DataType, target: IcebergType, where: str) -> Convert:
    if pa.types.is_dictionary(source):
        inner = _converter(source.value_type, target, where)
        return lambda array: inner(array.dictionary_decode())
    if isinstance(target, StructType):
        return _struct(source, target, where)
    if isinstance(target, ListType):
        return _list(source, target, where)
    if isinstance(target, MapType):
        return _map(source, target, where)
    return _primitive(source, arrow_type(target), where)


def _struct(source: pa.DataType, target: StructType, where: str) -> Convert:
    if not pa.types.is_struct(source):
        raise _not_promotable(source, target, where)
    wanted = arrow_type(target)
    indexes = {field_id(source.field(index)): index for index in range(source.num_fields)}
    parts: list[tuple[int | None, Convert, _Column | None]] = []
    for field, arrow in zip(target.fields, children(wanted), strict=True):
        inside = f"{where}, nested {field.name!r}"
        index = indexes.get(field.field_id)
        if index is None:
            parts.append((None, _identity, _Column(None, _identity, _default(field, inside), arrow)))
        else:
            parts.append((index, _converter(source.field(index).type, field.field_type, inside), None))

    def convert(array: pa.Array) -> pa.Array:
        arrays = [part(array.field(index)) if column is None else _repeated(column, len(array)) for index, part, column in parts]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=children(wanted), mask=mask)

    return _unless_already(source, wanted, convert)


def _list(source: pa.DataType, target: ListType, where: str) -> Convert:
    if not is_list(source):
        raise _not_promotable(source, target, where)
    wanted = arrow_type(target)
    element = _converter(source.value_type, target.element_type, f"{where}, element")

    def convert(array: pa.Array) -> pa.Array:
        if pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        offsets, low, high = _offsets(array)
        return pa.ListArray.from_arrays(offsets, element(array.values.slice(low, high - low)), type=wanted)

    return _unless_already(source, wanted, convert)


def _map(source: pa.DataType, target: MapType, where: str) -> Convert:
    if not pa.types.is_map(source):
        raise _not_promotable(source, target, where)
    wanted = arrow_type(target)
    key = _converter(source.key_type, target.key_type, f"{where}, key")
    value = _converter(source.item_type, target.value_type, f"{where}, value")

    def convert(array: pa.Array) -> pa.Array:
        offsets, low, high = _offsets(array)
        keys = key(array.keys.slice(low, high - low))
        values = value(array.items.slice(low, high - low))
        return pa.MapArray.from_arrays(offsets, keys, values, type=wanted)

    return _unless_already(source, wanted, convert)


def _unless_already(source: pa.DataType, wanted: pa.DataType, convert: Convert) -> Convert:
    """`convert`, skipped for arrays that already have the wanted type, nested ids included.

    The types of arrays are compared, not the type of the schema: a name mapping gives ids only to the schema, and the digest and the writer
    use the ids of the arrays.
    """
    if not source.equals(wanted, check_metadata=True):
        return convert
    return lambda array: array if array.type.equals(wanted, check_metadata=True) else convert(array)


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """The offsets of a list or map, counted from 0 and NULL where the list is NULL, and the range of child values that they cover."""
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    low, high = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    mask = None
    if array.null_count:
        mask = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array((offsets - low).astype(np.int32), type=pa.int32(), mask=mask), low, high


def _primitive(source: pa.DataType, target: pa.DataType, where: str) -> Convert:
    if source == target:
        return _identity
    if isinstance(source, pa.BaseExtensionType):
        inner = _primitive(source.storage_type, target, where)
        return lambda array: inner(array.storage)
    if isinstance(target, pa.BaseExtensionType):
        stored = _primitive(source, target.storage_type, where)
        return lambda array: pa.ExtensionArray.from_storage(target, stored(array))
    if not _promotable(source, target):
        raise _not_promotable(source, target, where)
    return lambda array: array.cast(target)


def _promotable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the spec allows this promotion, or both are Parquet forms of one type."""
    types = pa.types
    if types.is_null(source):
        return True
    if types.is_decimal(target):
        return bool(types.is_decimal(source) and source.scale == target.scale and source.precision <= target.precision)
    if types.is_timestamp(target):
        return bool(types.is_timestamp(source))
    for same in (types.is_date, types.is_time):
        if same(target):
            return bool(same(source))
    if types.is_int64(target) or types.is_int32(target):
        return bool(
            types.is_integer(source)
            and (source.bit_width < target.bit_width or (source.bit_width == target.bit_width and types.is_signed_integer(source)))
        )
    if types.is_floating(target):
        return bool(types.is_floating(source) and source.bit_width <= target.bit_width)
    if types.is_fixed_size_binary(target):
        return bool(types.is_fixed_size_binary(source) and source.byte_width == target.byte_width)
    text = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary, types.is_binary_view)
    return (types.is_string(target) or types.is_binary(target)) and any(kind(source) for kind in text)


def _not_promotable(source: pa.DataType, target: object, where: str) -> MergeFailed:
    return MergeRefused(f"{where} is stored as {source}, which cannot be read as {target}: not a promotion that the Iceberg spec allows")


def name_mapping_of(properties: Mapping[str, str]) -> NameMapping | None:
    """The table's `schema.name-mapping.default`. None if it is not set."""
    text = properties.get("schema.name-mapping.default")
    return None if not text else NameMapping.model_validate_json(text)


def schema_of(text: str) -> Schema:
    """An Iceberg schema from its JSON (spec, appendix C)."""
    return Schema.model_validate_json(text)
