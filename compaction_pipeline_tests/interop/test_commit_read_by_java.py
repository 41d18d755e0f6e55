"""Iceberg's Java library reads the table after each kind of our commits, and can go on writing to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, NestedField, TimestampType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import SCHEMA
from compaction_pipeline_tests.interop.java import BY_NAME, Java, Register

pytestmark = pytest.mark.interop


@pytest.fixture
def java(tmp_path: Path, spark_catalog: Register) -> Java:
    return Java(tmp_path, spark_catalog)


MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}


def test_java_reads_a_merge_with_both_kinds_of_deletes_and_goes_on(java: Java) -> None:
    t = java.lake.table(properties=MERGE_ON_READ)
    a, b = t.ids(1, 2, 3), t.ids(4, 5, 6)
    t.delete_positions((a.path, 0))
    t.delete_positions((a.path, 1), (b.path, 0), referenced=False)
    t.delete_ids(5)
    merge = t.merge()
    t.delete_ids(3)
    t.ids(5, 7)
    assert java.ids() == [5, 6, 7]
    assert t.commit(merge).state is CommitState.COMMITTED
    assert java.ids() == t.live_ids() == [5, 6, 7]
    java.goes_on(t)


def test_java_reads_a_merged_mixed_iceberg_table_without_a_key_and_goes_on(java: Java) -> None:
    amoro = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base", "write.metadata.delete-after-commit.enabled": "true"}
    t = java.lake.table(properties={**MERGE_ON_READ, **amoro})
    t.ids(1, 2)
    java.sql("INSERT INTO {t} (id) VALUES (3), (4)")
    java.sql("DELETE FROM {t} WHERE id = 2")
    t.table.refresh()
    assert t.head().refusal is None
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert java.ids() == t.live_ids() == [1, 3, 4]
    java.goes_on(t)
    t.ids(5, 6)
    assert t.head().refusal is None
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    java.agrees(t)


def test_java_reads_a_merge_beside_a_conversion_and_goes_on(java: Java) -> None:
    t = java.lake.table(properties=MERGE_ON_READ)
    a, b = t.ids(1, 2), t.ids(3, 4)
    delete = t.delete_ids(2, 3)
    outcome = t.commit(t.merge([a.path], "m1"), t.convert([b.path], [delete.path], "c1"))
    assert set(outcome.committed) == {"m1", "c1"}
    assert java.ids() == [1, 4]
    operations = [row["operation"] for row in java.sql("SELECT operation FROM {t}.snapshots ORDER BY committed_at, parent_id")]
    assert operations.count("replace") == operations.count("overwrite") == 1
    java.goes_on(t)


def test_a_position_delete_of_a_writer_that_began_before_us_fails(java: Java) -> None:
    """Java finds the conflict because its row delta looks in the history for DELETED entries of the files that it names."""
    t = java.lake.table(properties={**MERGE_ON_READ, "commit.retry.num-retries": "0"})
    file = t.ids(1, 2)
    t.ids(3)
    gateway = java.spark.sparkContext._jvm
    loaded = gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java.spark._jsparkSession, f"{java.name}.db.t")
    start = loaded.currentSnapshot().snapshotId()
    delta = loaded.newRowDelta()
    builder = gateway.org.apache.iceberg.FileMetadata.deleteFileBuilder(loaded.spec()).ofPositionDeletes()
    written = t.position_file([(file.path, 0)])
    deletes = builder.withPath(written.path).withFormat("parquet").withFileSizeInBytes(written.file_size_bytes).withRecordCount(1).build()
    delta.addDeletes(deletes).validateFromSnapshot(start)
    names = gateway.java.util.ArrayList()
    names.add(file.path)
    delta.validateDataFilesExist(names).validateDeletedFiles()
    t.commit(t.merge())
    with pytest.raises(Exception, match="missing data files"):
        delta.commit()
    assert java.ids() == [1, 2, 3]


def test_java_reads_a_table_whose_partition_source_was_dropped(java: Java) -> None:
    t = java.lake.table(spec=BY_NAME, properties=MERGE_ON_READ)
    for number in (1, 2):
        t.insert({"id": number, "name": "x y/z"}, partition=Record("x y/z"))
    t.insert({"id": 3, "name": "q"}, partition=Record("q"))
    t.delete_ids(2, partition=Record("x y/z"))
    with t.table.update_spec() as update:
        update.remove_field("name")
    with t.table.update_schema() as update:
        update.delete_column("name")
    inputs = [file.path for file in t.files() if file.is_data and file.partition[0].value == "x y/z"]
    assert t.commit(t.merge(inputs)).state is CommitState.COMMITTED
    assert t.live_ids() == [1, 3]
    assert java.ids() == [1, 3]


def test_java_reads_rows_that_were_moved_to_a_new_spec(java: Java) -> None:
    t = java.lake.table(spec=BY_NAME, properties=MERGE_ON_READ)
    t.insert({"id": 1, "name": "x"}, {"id": 2, "name": "x"}, partition=Record("x"))
    t.delete_ids(2, partition=Record("x"))
    with t.table.update_spec() as update:
        update.remove_field("name")
        update.add_field("name", TruncateTransform(1), "initial")
    t.table.refresh()
    t.new_partition = Record("x") if len(t.table.spec().fields) == 1 else Record(None, "x")
    outcome = t.commit(t.merge(output_spec_id=t.table.spec().spec_id))
    assert outcome.state is CommitState.COMMITTED
    assert java.ids() == [1]
    java.goes_on(t)


def test_java_reads_a_v1_table_and_goes_on(java: Java) -> None:
    t = java.lake.table(version=1)
    t.ids(1)
    t.ids(2)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert java.ids() == [1, 2]
    java.goes_on(t)


def test_java_reads_a_v1_spec_with_a_void_field(java: Java) -> None:
    t = java.lake.table(spec=PartitionSpec(PartitionField(2, 1000, VoidTransform(), "name"), spec_id=0), properties=MERGE_ON_READ)
    t.insert({"id": 1, "name": "x"}, {"id": 2, "name": "x"}, partition=Record(None))
    merge = t.merge()
    t.delete_ids(2, partition=Record(None))
    assert t.commit(merge).state is CommitState.COMMITTED
    assert java.ids() == [1]
    java.agrees(t)


def test_java_reads_every_partition_type_back(java: Java) -> None:
    from datetime import datetime
    from decimal import Decimal

    from pyiceberg.schema import Schema

    schema = Schema(
        *SCHEMA.fields,
        NestedField(3, "amount", DecimalType(9, 2)),
        NestedField(4, "at", TimestampType()),
        NestedField(5, "ratio", DoubleType()),
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "amount part"),
        PartitionField(4, 1001, DayTransform(), "at_day"),
        PartitionField(1, 1002, BucketTransform(4), "id_bucket"),
        PartitionField(5, 1003, IdentityTransform(), "ratio"),
        spec_id=0,
    )
    t = java.lake.table(schema=schema, spec=spec, properties=MERGE_ON_READ)
    at = datetime(2026, 3, 4, 5, 6, 7)
    bucket = BucketTransform(4).transform(schema.find_type("id"))
    for number in (1, 2, 3, 4):
        partition = Record(Decimal("1.50"), 20516, bucket(1), float("nan"))
        t.insert({"id": number, "name": "x", "amount": Decimal("1.50"), "at": at, "ratio": float("nan")}, partition=partition)
    assert t.commit(t.merge()).state is CommitState.COMMITTED
    assert len([file for file in t.files() if file.is_data]) == 1
    assert java.ids() == [1, 2, 3, 4]
    java.agrees(t)


def test_we_commit_on_what_java_wrote(java: Java) -> None:
    t = java.lake.table(properties=MERGE_ON_READ)
    for number in range(4):
        # The file has two rows, so Spark deletes one of them by a position delete.
        rows = f"VALUES ({number}, 'n{number}'), ({number + 10}, 'm{number}') AS v(id, name)"
        java.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM {rows}")
    java.sql("DELETE FROM {t} WHERE id IN (1, 12)")
    assert t.paths(FileContent.POSITION_DELETES)
    merge = t.merge()
    java.sql("INSERT INTO {t} VALUES (99, 'late')")
    assert t.commit(merge).state is CommitState.COMMITTED
    assert t.paths(FileContent.POSITION_DELETES) == set()
    assert java.ids() == t.live_ids() == [0, 2, 3, 10, 11, 13, 99]
    java.goes_on(t)


def test_java_applies_a_delete_that_came_after_the_plan(java: Java) -> None:
    t = java.lake.table()
    t.ids(1, 2)
    t.ids(3)
    merge = t.merge()
    late = t.equality_file({"id": pa.array([3], pa.int64())})
    row_delta(t.table, [t.data_file([{"id": 4, "name": "x"}])], equality_deletes=[(late, [1])])
    assert t.commit(merge).state is CommitState.COMMITTED
    assert java.ids() == [1, 2, 4]
