"""Reads a table's rows with Iceberg's Java library on Spark, and gives them the form of the reference reader's rows."""

from __future__ import annotations

from datetime import timezone
from typing import Any

from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

from compaction_pipeline_tests.reference_reader import Row, canonical, live_entries, metadata_of


def java_rows(spark: Any, metadata_location: str) -> list[Row]:
    """The rows of the table that this metadata file describes."""
    # One Spark task reads all files. The tables are small, so starting a task for each file would take longer than reading it.
    frame = spark.read.format("iceberg").option("split-size", 1 << 30).option("file-open-cost", 1).load(metadata_location).coalesce(1)
    return frame_rows(frame)


def java_can_read(table: Any) -> bool:
    """False for a table that Java's reader refuses.

    Java also reads dropped columns that equality deletes name (`DeleteFilter.fileProjection`). It refuses the table when a
    current column, or another dropped one, has the same name as such a column.
    """
    metadata = metadata_of(table)
    if "schemas" not in metadata:
        return True
    [current] = [schema for schema in metadata["schemas"] if schema["schema-id"] == metadata["current-schema-id"]]
    ids = {field["id"] for field in current["fields"]}
    wanted = {number for entry in live_entries(metadata) for number in entry.file.get("equality_ids") or ()}
    dropped = {(field["id"], field["name"]) for schema in metadata["schemas"] for field in schema["fields"] if field["id"] in wanted - ids}
    names = [field["name"] for field in current["fields"]] + [name for _, name in dropped]
    return len(set(names)) == len(names)


def frame_rows(frame: Any) -> list[Row]:
    """The rows of a Spark DataFrame."""
    return [_row(row, frame.schema) for row in frame.collect()]


def _row(row: Any, kind: StructType) -> Row:
    return {item.name: _value(row[item.name], item.dataType) for item in kind.fields}


def _value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return _row(value, kind)
    if isinstance(kind, MapType):
        return frozenset(
            (canonical(_value(key, kind.keyType)), canonical(_value(item, kind.valueType))) for key, item in dict(value).items()
        )
    if isinstance(kind, ArrayType):
        return [_value(item, kind.elementType) for item in value]
    if isinstance(kind, TimestampType):
        # Spark gives an instant as the local time of this process, without a zone.
        return value.astimezone(timezone.utc)
    return value
