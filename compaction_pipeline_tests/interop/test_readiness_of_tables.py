"""What readiness reads of tables that Spark writes: watermarks in summaries, and tables with columns that PyIceberg does not know."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.dependencies.watermark import Watermark
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader
from compaction_pipeline_tests.iceberg.dependencies.facts import watermark_in
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.reference_reader import bag_difference

pytestmark = pytest.mark.interop

T = TableIdentifier("lake", ("db",), "t")
FIVE = datetime(2026, 1, 1, 5, tzinfo=timezone.utc)


def catalogs_of(warehouse: Warehouse) -> Catalogs:
    return Catalogs(lambda name: CatalogEntry(name, warehouse.properties))


def watermark(reader: IcebergFactsReader) -> Watermark | None:
    return watermark_in(reader.read(T))


def append(warehouse: Warehouse, rows: str, **summary: str) -> None:
    """Let Spark append the rows of a query with these keys in the snapshot's summary, as the page on readiness tells it."""
    writer = warehouse.spark.sql(rows).writeTo(f"{warehouse.name}.{warehouse.database}.t")
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


def test_a_watermark_of_spark_outlives_compactions(warehouse: Warehouse, compactions: Compactions) -> None:
    warehouse.sql("CREATE TABLE {t} (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day)")
    reader = IcebergFactsReader(catalogs_of(warehouse))
    assert watermark(reader) is None
    append(warehouse, "SELECT id, '2026-01-01' AS day FROM range(0, 5)", **{"kafka.connect.valid-through-ts": "2026-01-01T14:00+09:00"})
    append(warehouse, "SELECT id, '2026-01-01' AS day FROM range(5, 9)")
    first = watermark(reader)
    assert first is not None
    assert (first.at, first.key) == (FIVE, "kafka.connect.valid-through-ts")
    read = reader.partition_commits(reader.read(T), None)
    rows = warehouse.java_rows()
    assert compactions.compact(CompactionType.FULL).committed
    assert bag_difference(warehouse.java_rows(), rows) == ""
    after = watermark(reader)
    assert after is not None
    assert after.at == FIVE
    reading = reader.partition_commits(reader.read(T), read.heads)
    assert not reading.anew
    assert [one.added_at for one in reading.commits] == [None]
    append(warehouse, "SELECT id, '2026-01-02' AS day FROM range(9, 12)", watermark=str(int(FIVE.timestamp() * 1000) + 3_600_000))
    assert watermark(reader) is not None
    assert (watermark(reader) or first).at == FIVE + timedelta(hours=1)
    [commit] = reader.partition_commits(reader.read(T), reading.heads).commits
    assert ("/".join(map(str, commit.partition)), commit.files > 0, commit.added_at is not None) == ("day=2026-01-02", True, True)


def test_a_table_with_a_variant_tells_its_watermark(warehouse: Warehouse) -> None:
    """PyIceberg does not load it, and this program does not compact it."""
    warehouse.sql(
        "CREATE TABLE {t} (id BIGINT, day STRING, v VARIANT) USING iceberg PARTITIONED BY (day) TBLPROPERTIES ('format-version'='3')"
    )
    append(
        warehouse, "SELECT 1 AS id, 'd1' AS day, parse_json('{\"a\": 1}') AS v", **{"flink.watermark": str(int(FIVE.timestamp() * 1000))}
    )
    catalogs = catalogs_of(warehouse)
    with pytest.raises(CompactionError):
        catalogs.load(T)
    reader = IcebergFactsReader(catalogs)
    found = watermark(reader)
    assert found is not None
    assert (found.at, found.key) == (FIVE, "flink.watermark")
    [commit] = reader.partition_commits(reader.read(T), None).commits
    assert ("/".join(map(str, commit.partition)), commit.files) == ("day=d1", 1)
    assert [row["id"] for row in warehouse.sql("SELECT id FROM {t}")] == [1]
