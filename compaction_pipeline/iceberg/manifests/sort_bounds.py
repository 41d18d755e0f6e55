"""Reads the bounds of a table's sort columns from manifest entries, as values that keep their order in the state database."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType

from compaction_pipeline.core.tables.data_file import BoundedFile, Bounds, LiveFile
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry


class SortBounds:
    """The bounds of the columns that the default sort order of a table names. `columns` are their types by field id."""

    def __init__(self, metadata: TableMetadata) -> None:
        order = metadata.sort_order_by_id(metadata.default_sort_order_id)
        named = [field.source_id for field in order.fields] if order is not None else []
        known = set(metadata.schema().field_ids)
        kinds = {number: metadata.schema().find_type(number) for number in named if number in known}
        self.columns = {number: kind for number, kind in kinds.items() if isinstance(kind, PrimitiveType)}

    def of(self, file: LiveFile, entry: DecodedEntry) -> LiveFile:
        """A data file with its bounds. A delete file, or one of a table without a sort order, stays as it is."""
        if not self.columns or not file.is_data:
            return file
        return BoundedFile.of(file, {number: _bounds(kind, number, entry) for number, kind in self.columns.items()})


def _bounds(kind: PrimitiveType, number: int, entry: DecodedEntry) -> Bounds | None:
    """The bounds of one column; None when one is missing, or cannot be read."""
    lower, upper = ((bounds or {}).get(number) for bounds in (entry.lower_bounds, entry.upper_bounds))
    if lower is None or upper is None:
        return None
    try:
        low, high = (_ordered(from_bytes(kind, bytes(bound))) for bound in (lower, upper))
        return (low, high) if low <= high else None
    except Exception:
        # Bounds that were written before the column's type was promoted may have another length. Such a file may hold any value.
        return None


def _ordered(value: Any) -> Any:
    """A number or a text that sorts as the value does among values of its type."""
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no bound")
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, Decimal):
        # All values of a column have one scale.
        return int(value.scaleb(-int(value.as_tuple().exponent)))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (int, float, str)):
        return value
    raise ValueError(f"a bound of type {type(value).__name__} has no order here")
