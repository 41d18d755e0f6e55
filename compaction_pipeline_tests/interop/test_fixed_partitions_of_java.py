"""Java writes partition values of type fixed against its own Avro schema. Such a table is refused, and none of its files is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import FixedType, LongType, NestedField

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.interop.java import Java, Register

pytestmark = pytest.mark.interop

_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", FixedType(4)))
_VALUES = [b"\x00\x01\x02\x03", b"\xff\xff\xff\xff"]
_SAYS = "partition values of field id 1000, a fixed type, have their length in front, as Iceberg's Java library writes them"


def test_a_table_of_java_s_with_fixed_partitions_is_refused_and_left_alone(
    tmp_path: Path, spark_catalog: Register, iceberg_spark: Any
) -> None:
    java = Java(tmp_path, spark_catalog)
    t = java.lake.table(schema=_SCHEMA)
    with t.table.update_spec() as update:
        update.add_identity("v")
    # NULL is written alike in both forms, so a table with only NULL is not refused.
    for number in (1, 2):
        _append_by_java(java, iceberg_spark, t, number, None)
    task = t.merge()
    for number, value in enumerate(_VALUES, 3):
        _append_by_java(java, iceberg_spark, t, number, value)
    rows = java.sql("SELECT * FROM {t} ORDER BY id")
    assert [(row["id"], row["v"] and bytes(row["v"])) for row in rows] == [(1, None), (2, None), *enumerate(_VALUES, 3)]
    files = _metadata(tmp_path)

    with pytest.raises(TableRefused, match=_SAYS) as refused:
        t.files()
    assert "not damaged" in str(refused.value)
    with pytest.raises(TableRefused, match=_SAYS):
        t.commit(replace(task, attempt_id="a1"))
    assert _metadata(tmp_path) == files
    assert java.sql("SELECT * FROM {t} ORDER BY id") == rows


def _append_by_java(java: Java, spark: Any, t: LakeTable, number: int, value: bytes | None) -> None:
    core = spark._jvm.org.apache.iceberg
    rows = pa.table({"id": pa.array([number], pa.int64())})
    file = write_parquet_file(t.table.refresh(), rows, content=FileContent.DATA, partition=Record(None), name=f"java-{number}")
    table = core.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{java.name}.db.t")
    partition = core.PartitionData(table.spec().partitionType())
    partition.set(0, None if value is None else spark._jvm.java.nio.ByteBuffer.wrap(value))
    builder = core.DataFiles.builder(table.spec()).withPath(file.path).withFormat("parquet").withRecordCount(1)
    append = table.newFastAppend()
    append.appendFile(builder.withFileSizeInBytes(file.file_size_bytes).withPartition(partition).build())
    append.commit()


def _metadata(folder: Path) -> set[str]:
    return {path.name for path in (folder / "wh").rglob("metadata/*")}
