"""A compaction that moves rows to another partition spec finds the same partitions as Java, for extreme values of every type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, DateType, DecimalType, FixedType, LongType, NestedField, StringType, TimestampType, TimestamptzType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.interop.java import Java, Register
from compaction_pipeline_tests.interop.types import TYPES
from compaction_pipeline_tests.works import merge_task

pytestmark = pytest.mark.interop

_FIXED = [b"\x00" * 4, b"\xff" * 4, b"\x80\x00\x00\x01"]
# A character outside the basic plane counts as two chars in Java, and as one character in the specification.
_TEXTS = ["\U0001f600" * 10, "ab\U0001f600cd", "a\U0001f600\U0001f600\U0001f600", "\U0010ffff" * 3, "e\u0301e\u0301", "\ud7ff\ue000\uffff!"]
_BYTES = [bytes(range(250, 256)), b"\x00" * 5]
# Days and timestamps just before and after the start of 1970, of a year, a month, a day and an hour.
_DAYS = [-1, 0, -365, -366, -31, -32, 31, 365, -141428, 20454]
_MICROS = [unit * sign + step for unit in (3_600_000_000, 86_400_000_000, 31_536_000_000_000) for sign in (-1, 1) for step in (-1, 0, 1)]
_MORE: Mapping[type[Any], list[Any]] = {
    StringType: _TEXTS,
    BinaryType: _BYTES,
    DateType: _DAYS,
    TimestampType: _MICROS,
    TimestamptzType: _MICROS,
}
_VALUES = [*[(kind, [*values, *_MORE.get(type(kind), ())]) for kind, values in TYPES], (FixedType(4), _FIXED)]


def _width(kind: Any) -> int:
    return 3 if isinstance(kind, (StringType, BinaryType)) else 10


_TRANSFORMS: Mapping[str, Callable[[Any], Any]] = {
    "bucket": lambda kind: BucketTransform(7),
    "truncate": lambda kind: TruncateTransform(_width(kind)),
    "year": lambda kind: YearTransform(),
    "month": lambda kind: MonthTransform(),
    "day": lambda kind: DayTransform(),
    "hour": lambda kind: HourTransform(),
    # `fixed` is left out; see `test_fixed_partitions_of_java.py`.
    "identity": lambda kind: IdentityTransform() if not isinstance(kind, FixedType) else YearTransform(),
}


@pytest.mark.parametrize("name", list(_TRANSFORMS))
def test_rows_go_to_the_partitions_that_java_computes(tmp_path: Path, spark_catalog: Register, iceberg_spark: Any, name: str) -> None:
    java = Java(tmp_path, spark_catalog)
    columns = {f"c{place}": (kind, values) for place, (kind, values) in enumerate(_VALUES) if _TRANSFORMS[name](kind).can_transform(kind)}
    fields = [NestedField(place + 2, column, kind) for place, (column, (kind, _)) in enumerate(columns.items())]
    t = java.lake.table(schema=Schema(NestedField(1, "id", LongType()), *fields))
    file = write_parquet_file(
        t.table, _rows(t.table.schema(), columns, name), content=FileContent.DATA, name="rows", parquet={"write_statistics": False}
    )
    row_delta(t.table, [file])
    with t.table.update_spec() as update:
        for column, (kind, _) in columns.items():
            update.add_field(column, _TRANSFORMS[name](kind), f"p_{column}")
    computed = _computed(java, iceberg_spark)

    task = replace(t.planned([file.path], "m1"), attempt_id="a1")
    task = replace(task, work=replace(task.work, output_spec_id=t.table.refresh().spec().spec_id))
    result = merge_task(task, t.head().layout, t.lake.properties)
    assert result.error is None
    outcome = t.commit(replace(task, result=result))
    assert (outcome.state, outcome.conflicts) == (CommitState.COMMITTED, {})

    listed = _listed(java, iceberg_spark)
    held = {
        number: partition
        for path, partition in listed.items()
        for number in pq.ParquetFile(path.removeprefix("file://")).read(columns=["id"]).column("id").to_pylist()
    }
    assert held == computed
    assert _computed(java, iceberg_spark) == computed


def _rows(schema: Schema, columns: Mapping[str, tuple[Any, list[Any]]], name: str) -> pa.Table:
    """Rows that together have every value of every column. In the last row all values are NULL."""
    count = max(len(values) for _, values in columns.values())
    target = schema_to_pyarrow(schema)
    arrays = {"id": pa.array(range(count + 1), pa.int64())}
    for column, (kind, values) in columns.items():
        if name == "truncate" and isinstance(kind, DecimalType):
            # The partition of the lowest value would need one digit more than the type has. Java does not write it either.
            lowest = min(values)
            values = [_floored(lowest, kind.scale) if value == lowest else value for value in values]
        arrays[column] = _array([*(values[row % len(values)] for row in range(count)), None], target.field(column).type)
    return pa.table(arrays)


def _floored(lowest: Decimal, scale: int) -> Decimal:
    sign, digits, exponent = lowest.as_tuple()
    return Decimal((sign, (*digits[:-1], 0), exponent))


def _array(values: list[Any], kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([None if one is None else one.bytes for one in values], kind.storage_type))
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.array([getattr(one, "bytes", one) for one in values], kind)


def _table_of(java: Java, spark: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{java.name}.db.t")


def _computed(java: Java, spark: Any) -> dict[int, list[Any]]:
    """For each id: the partition values that Java computes from the row."""
    core, table = spark._jvm.org.apache.iceberg, _table_of(java, spark)
    key = core.PartitionKey(table.spec(), table.schema())
    wrapper = core.data.InternalRecordWrapper(table.schema().asStruct())
    found: dict[int, list[Any]] = {}
    read = core.data.IcebergGenerics.read(table).build()
    rows = read.iterator()
    while rows.hasNext():
        record = rows.next()
        key.partition(wrapper.wrap(record))
        found[record.getField("id")] = _values(spark, key, table.spec())
    read.close()
    return found


def _listed(java: Java, spark: Any) -> dict[str, list[Any]]:
    """For each path: the partition values of the live file, as Java reads them from its manifest entry."""
    table = _table_of(java, spark)
    found: dict[str, list[Any]] = {}
    for manifest in table.currentSnapshot().dataManifests(table.io()):
        reader = spark._jvm.org.apache.iceberg.ManifestFiles.read(manifest, table.io(), table.specs())
        files = reader.iterator()
        while files.hasNext():
            file = files.next()
            assert file.specId() == table.spec().specId()
            found[file.location()] = _values(spark, file.partition(), table.spec())
        reader.close()
    return found


def _values(spark: Any, partition: Any, spec: Any) -> list[Any]:
    anything = spark._jvm.java.lang.Class.forName("java.lang.Object")
    return [_told(spark, partition.get(place, anything)) for place in range(spec.fields().size())]


def _told(spark: Any, value: Any) -> Any:
    """A form of a value that equals only the same value."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    if value is None or isinstance(value, (bool, int, str, Decimal)):
        return (type(value).__name__, value)
    if value.getClass().getName().endswith("ByteBuffer"):
        return bytes(spark._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(value))
    return value.toString()
