"""Java reads extreme values of every type, as identity partitions and as bounds, alike before and after a compaction."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.interop.java import Java, Register
from compaction_pipeline_tests.interop.types import TYPES
from compaction_pipeline_tests.works import merge_task

pytestmark = pytest.mark.interop

_WIDE = Context(prec=80)


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_java_reads_the_same_partitions_bounds_and_rows(
    tmp_path: Path, spark_catalog: Register, iceberg_spark: Any, kind: Any, values: list[Any]
) -> None:
    java = Java(tmp_path, spark_catalog)
    ours, theirs = (_table(java, name, kind) for name in ("ours", "theirs"))
    wanted: dict[str, Any] = {}
    # Each value is in three files without its column, so it comes only from the manifest. A fourth file has it as a column's bound.
    written = []
    for number, value in enumerate([*values, None]):
        files = [_file(ours, f"{number}-{copy}", number, value) for copy in range(3)]
        files.append(_bounded(ours, f"{number}-b", number, value, kind))
        wanted.update({file.path: value for file in files})
        written += files
    row_delta(ours.table, written)
    shown = {path: _shown_by_java(iceberg_spark, kind, value) for path, value in wanted.items()}
    described = _described(java, iceberg_spark, "ours", kind)
    assert {path: file.partition for path, file in described.items()} == shown
    # Java reads the files from our manifests, and appends them to another table with manifests of its own.
    _append_by_java(java, iceberg_spark)
    before, rows = _described(java, iceberg_spark, "theirs", kind), _rows(java, kind)
    assert {path: file.partition for path, file in before.items()} == shown
    assert {path: file.entry for path, file in before.items()} == {path: file.entry for path, file in described.items()}

    # A filtered scan skips manifests by these summaries. Ours must equal those that Java makes from the same values.
    (by_java,) = _summaries(java, iceberg_spark, "theirs")
    # Iceberg's Java versions order UUIDs differently. So our summaries have no bounds of UUIDs, and such a manifest is never skipped.
    summary = None if isinstance(kind, UUIDType) else by_java
    assert _summaries(java, iceberg_spark, "ours") == {summary}

    tasks, live = [], theirs.files()
    for number, value in enumerate([*values, None]):
        chosen = [file.path for file in live if file.path.endswith((f"/{number}-0.parquet", f"/{number}-1.parquet"))]
        task = replace(theirs.planned(chosen, f"m{number}"), attempt_id="a1")
        result = merge_task(task, theirs.head().layout, theirs.lake.properties)
        assert result.error is None
        (output,) = result.outputs
        assert _column(output, kind) == [_plain(value)] * 2
        shown[output.path] = _shown_by_java(iceberg_spark, kind, value)
        tasks.append(replace(task, result=result))
    outcome = theirs.commit(*tasks)
    assert (outcome.state, outcome.conflicts) == (CommitState.COMMITTED, {})

    after = _described(java, iceberg_spark, "theirs", kind)
    assert {path: file for path, file in after.items() if path in before} == {path: file for path, file in before.items() if path in after}
    assert {path: file.partition for path, file in after.items()} == {path: shown[path] for path in after}
    assert len(after) == 3 * (len(values) + 1)
    assert _summaries(java, iceberg_spark, "theirs") == {summary}
    assert _rows(java, kind) == rows


class _Described(NamedTuple):
    """A live file as Java describes it: its partition's value, the rest of its entry as JSON, and its two sequence numbers."""

    partition: Any
    entry: Any
    numbers: tuple[Any, Any]


def _table(java: Java, name: str, kind: Any) -> LakeTable:
    t = java.lake.table(name, schema=Schema(NestedField(1, "id", LongType())))
    with t.table.update_schema() as update:
        update.add_column("v", kind)
        update.add_column("w", kind)
    with t.table.update_spec() as update:
        update.add_identity("v")
    return t


def _file(t: LakeTable, name: str, number: int, value: Any) -> OutputFile:
    rows = pa.table({"id": pa.array([number], pa.int64())})
    return write_parquet_file(t.table, rows, content=FileContent.DATA, partition=Record(value), name=name, schema_id=0)


def _bounded(t: LakeTable, name: str, number: int, value: Any, kind: Any) -> OutputFile:
    """A file like that of `_file`, with bounds of the column `w`. Their bytes are made in this module."""
    bound = {} if value is None or value != value else {3: _single_value(kind, value).hex()}
    return replace(_file(t, name, number, value), lower_bounds=bound, upper_bounds=bound, nan_value_counts={3: int(value != value)})


def _single_value(kind: Any, value: Any) -> bytes:
    """The bytes of a value by appendix D of the Iceberg specification, made with the standard library alone."""
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, float):
        return struct.pack("<f" if isinstance(kind, FloatType) else "<d", value)
    if isinstance(value, int):
        return struct.pack("<i" if isinstance(kind, (IntegerType, DateType)) else "<q", value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(kind.scale, context=_WIDE))
        return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)
    return bytes(value)


def _column(output: OutputFile, kind: Any) -> list[Any]:
    """The values of the column `v` in a merged file, as Arrow holds them."""
    column = pq.ParquetFile(output.path.removeprefix("file://")).read(columns=["v"]).column("v").combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    return _exact(value)


def _exact(value: Any) -> Any:
    """A form of a value that equals only the same value: 0.0 and -0.0 differ, and NaN equals NaN."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    return repr(value) if isinstance(value, (bool, Decimal)) else value


def _java_table(java: Java, spark: Any, name: str) -> Any:
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{java.name}.db.{name}")


def _described(java: Java, spark: Any, name: str, kind: Any) -> dict[str, _Described]:
    """The live files by path, as Java's library reads their manifest entries. It makes few calls for each file, because calls are slow."""
    table = _java_table(java, spark, name)
    specs, io, core = table.specs(), table.io(), spark._jvm.org.apache.iceberg
    spec, as_json, read = table.spec(), core.ContentFileParser.toJson, core.ManifestFiles.read
    found: dict[str, _Described] = {}
    for manifest in table.currentSnapshot().dataManifests(io):
        reader = read(manifest, io, specs)
        files = reader.iterator()
        while files.hasNext():
            file = files.next()
            told = json.loads(as_json(file, spec))
            path, partition = told.pop("file-path"), told.pop("partition")
            (value,) = partition.values() if isinstance(partition, dict) else partition
            found[path] = _Described(_from_json(kind, value), told, (file.dataSequenceNumber(), file.fileSequenceNumber()))
        reader.close()
    return found


def _from_json(kind: Any, value: Any) -> Any:
    """A value in the form of `_shown_by_java`."""
    if isinstance(kind, FloatType) and value is not None:
        return _exact(struct.unpack("<f", struct.pack("<f", float(value)))[0])
    return _exact(float(value)) if isinstance(kind, DoubleType) and value is not None else value


def _shown_by_java(spark: Any, kind: Any, value: Any) -> Any:
    """A value in Iceberg's JSON single-value serialization. Java's own library writes the timestamps."""
    times = spark._jvm.org.apache.iceberg.util.DateTimeUtil
    moments = {
        DateType: times.daysToIsoDate,
        TimeType: times.microsToIsoTime,
        TimestampType: times.microsToIsoTimestamp,
        TimestamptzType: times.microsToIsoTimestamptz,
    }
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(kind) in moments:
        return moments[type(kind)](value)
    if isinstance(value, (UUID, Decimal)):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    return value.hex().upper() if isinstance(value, bytes) else _exact(value)


def _summaries(java: Java, spark: Any, name: str) -> set[tuple[Any, ...] | None]:
    """For each manifest in the list: whether its partitions contain NULL and NaN, and their lowest and highest value as bytes."""
    table, as_bytes = _java_table(java, spark, name), spark._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray
    found: set[tuple[Any, ...] | None] = set()
    for manifest in table.currentSnapshot().dataManifests(table.io()):
        fields = manifest.partitions()
        if fields is None:
            found.add(None)
            continue
        field = fields[0]
        bounds = [bytes(as_bytes(bound)) for bound in (field.lowerBound(), field.upperBound())]
        found.add((field.containsNull(), field.containsNaN(), *bounds))
    return found


def _append_by_java(java: Java, spark: Any) -> None:
    jvm, source, target = spark._jvm, _java_table(java, spark, "ours"), _java_table(java, spark, "theirs")
    append = target.newFastAppend()
    read = jvm.org.apache.iceberg.ManifestFiles.read
    for manifest in source.currentSnapshot().dataManifests(source.io()):
        reader = read(manifest, source.io(), source.specs())
        files = reader.iterator()
        while files.hasNext():
            append.appendFile(files.next().copy())
        reader.close()
    append.commit()


def _rows(java: Java, kind: Any) -> list[str] | None:
    """The rows of the table as Spark shows them, with the column from the manifests. None for a type that Spark does not have."""
    if isinstance(kind, TimeType):
        return None
    text = "cast(v AS string)" if not isinstance(kind, BinaryType) else "hex(v)"
    return sorted(repr(row) for row in java.sql(f"SELECT id, {text} AS v FROM {{c}}.db.theirs"))
