"""Fields of Arrow schemas, as PyArrow reads them from Parquet."""

from __future__ import annotations

import pyarrow as pa

FIELD_ID_KEY = b"PARQUET:field_id"
"""The key in the metadata of an Arrow field under which PyArrow keeps the id of its Parquet column."""


def field_id(field: pa.Field) -> int | None:
    """The Iceberg id that an Arrow field carries from Parquet. None if it carries none."""
    if not field.metadata or FIELD_ID_KEY not in field.metadata:
        return None
    value = int(field.metadata[FIELD_ID_KEY])
    return value if value >= 0 else None


def children(arrow: pa.DataType) -> list[pa.Field]:
    """The nested fields of an Arrow type: the fields of a struct, the element of a list, or the key and value of a map."""
    if pa.types.is_struct(arrow):
        return [arrow.field(index) for index in range(arrow.num_fields)]
    if is_list(arrow):
        return [arrow.value_field]
    if pa.types.is_map(arrow):
        return [arrow.key_field, arrow.item_field]
    return []


def is_list(arrow: pa.DataType) -> bool:
    """Whether an Arrow type is a list of any kind. A map is none."""
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))
