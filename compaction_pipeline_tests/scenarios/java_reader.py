"""A table's rows as Iceberg's own Java library on Spark sees them, in the form of the reference reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction_pipeline_tests.reference_reader import Row, canonical


def java_rows(spark: Any, metadata_location: str) -> list[Row]:
    """Rows of the table whose metadata file this is."""
    return [_row(row) for row in spark.read.format("iceberg").load(metadata_location).collect()]


def _row(row: Any) -> Row:
    return {name: _value(row[name]) for name in row.__fields__}


def _value(value: Any) -> Any:
    if hasattr(value, "__fields__"):
        return _row(value)
    if isinstance(value, Mapping):
        return frozenset((canonical(key), canonical(item)) for key, item in value.items())
    if isinstance(value, list):
        return [_value(item) for item in value]
    return value
