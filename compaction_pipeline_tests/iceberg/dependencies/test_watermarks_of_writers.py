"""The watermarks of writers, as they write them: Kafka Connect, Flink with Netflix's addition, Amoro, and the writers of this program.

Sources: Iceberg 1.10's `Coordinator.commitToTable` of Kafka Connect (`OffsetDateTime.toString`, and no key after a partial commit), and
tables that Amoro wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.dependencies.watermark import Watermark
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader
from compaction_pipeline_tests.iceberg.dependencies.facts import watermark_in
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.keyed.written import Keyed, row
from compaction_pipeline_tests.scenarios.examples.unpacking import catalog_properties, unpack

T = TableIdentifier("lake", ("db",), "t")
FIVE = datetime(2026, 1, 1, 5, tzinfo=timezone.utc)


def watermark(catalogs: Catalogs) -> Watermark | None:
    """The watermark of the table T, from what its catalog names."""
    return watermark_in(IcebergFactsReader(catalogs).read(T))


def write(table: LakeTable, number: int, summary: Mapping[str, str]) -> int:
    """Append a row with these keys in the summary. The result is the snapshot's id."""
    row_delta(table.table, [table.data_file([{"id": number, "name": "n"}])], properties=summary)
    head = table.head().snapshot_id
    assert head is not None
    return head


def kafka(through: str | None) -> dict[str, str]:
    """What a commit of Kafka Connect says in the summary. A partial commit does not say through when its data is valid."""
    said = {
        "kafka.connect.offsets.control-iceberg.cg-control-orders": '{"0":42}',
        "kafka.connect.commit-id": "5cc9c5e5-1a0c-4ad4-9f3b-0b4cf4cd5f0e",
        "kafka.connect.task-id": "orders-0",
    }
    return said if through is None else {**said, "kafka.connect.valid-through-ts": through}


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-01T05:00Z", FIVE),
        ("2026-01-01T05:00:07Z", FIVE + timedelta(seconds=7)),
        ("2026-01-01T05:00:07.120Z", FIVE + timedelta(seconds=7, milliseconds=120)),
        ("2026-01-01T05:00:07.120456789Z", FIVE + timedelta(seconds=7, microseconds=120456)),
        ("2026-01-01T14:00+09:00", FIVE),
        ("2025-12-31T23:30:00.5-05:30", FIVE + timedelta(milliseconds=500)),
    ],
)
def test_kafka_connect_says_through_when_its_data_is_valid(lake: Lake, text: str, at: datetime) -> None:
    table = lake.table()
    said = write(table, 1, kafka(text))
    write(table, 2, kafka(None))
    assert watermark(lake.catalogs) == Watermark(at, "kafka.connect.valid-through-ts", said)


def test_no_compaction_hides_a_watermark(lake: Lake) -> None:
    table = lake.table()
    write(table, 1, kafka("2026-01-01T05:00Z"))
    said = write(table, 2, {"flink.job-id": "f" * 32, "flink.max-committed-checkpoint-id": "7", "flink.watermark": "1767243600000"})
    assert table.commit(table.merge()).committed
    found = watermark(lake.catalogs)
    assert found is not None
    assert found.at == FIVE
    assert table.head().snapshot_id != said


def test_a_job_of_flink_that_waits_for_its_first_event_says_nothing(lake: Lake) -> None:
    table = lake.table()
    said = write(table, 1, {"flink.watermark": "1767243600000"})
    write(table, 2, {"flink.watermark": "-9223372036854775808"})
    assert watermark(lake.catalogs) == Watermark(FIVE, "flink.watermark", said)


@pytest.mark.parametrize("name", ["amoro_keyed_unpart", "amoro_keyed_change_only"])
def test_amoro_keeps_the_watermark_in_properties_of_the_stores(name: str, tmp_path: Path) -> None:
    properties = catalog_properties(unpack(name, tmp_path))
    catalogs = Catalogs(lambda name: CatalogEntry(name, properties))
    catalog = catalogs.catalog("lake")
    said = [catalog.load_table(f"db.{store}").properties.get("watermark.table", "-1") for store in ("t", "t_change_")]
    greatest = max(map(int, said))
    assert greatest > 0
    assert watermark(catalogs) == Watermark(
        datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=greatest), "watermark.table", None
    )


def test_the_least_of_our_own_sinks_counts_in_a_keyed_table(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"}
    catalogs = Catalogs(lambda name: CatalogEntry(name, properties))
    assert watermark(catalogs) is None
    for number, (sink, at) in enumerate((("eu", FIVE), ("us", FIVE + timedelta(hours=2)))):
        keyed.write(("INSERT", row(number)), sink_id=sink, batch=0, watermark=at)
    found = watermark(catalogs)
    assert found is not None
    assert found.at == FIVE == keyed.table.watermark()
