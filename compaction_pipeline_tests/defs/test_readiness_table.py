"""A real table, the real services and Dagster's own evaluation: an asset waits for the table's watermark."""

from __future__ import annotations

from datetime import datetime

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.typedef import Record

from compaction_pipeline.automation import ready_definitions, ready_partitions
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.readiness import utc
from compaction_pipeline_tests.defs.test_readiness import SENSOR, WHEN_READY, Automation, evaluations, materialized
from compaction_pipeline_tests.defs.ticks import Tick, reason

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
BERLIN = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08", timezone="Europe/Berlin")
OURS = ready_partitions("lake.shop.orders", DAYS)
THEIRS = ready_partitions("lake.shop.orders", BERLIN, key="orders_in_berlin")


@dg.asset(partitions_def=DAYS, deps=[OURS.asset], automation_condition=WHEN_READY)
def report() -> None: ...


@dg.asset(partitions_def=BERLIN, deps=[THEIRS.asset], automation_condition=WHEN_READY)
def report_in_berlin() -> None: ...


DEFS = dg.Definitions.merge(ready_definitions(OURS, THEIRS), dg.Definitions(assets=[report, report_in_berlin]))


def write(lake: Lake, day: int, watermark: datetime) -> None:
    """Commit a file of one day, and say a watermark with it."""
    table = lake.orders
    text = f"2026-01-{day:02}"
    rows = pa.table({"id": [1], "day": [text]}, schema=table.schema().as_arrow())
    file = write_parquet_file(table, rows, content=FileContent.DATA, partition=Record(text), name=f"w-{watermark:%d%H%M}")
    row_delta(table, [file], properties={"watermark": str(int(watermark.timestamp() * 1000))})


@pytest.fixture
def waiting(lake: Lake) -> Lake:
    with lake.orders.transaction() as transaction:
        transaction.set_properties({"compaction.ready-time": "day,yyyy-MM-dd,UTC", "compaction.ready-when": "watermark"})
    return lake


def test_an_asset_waits_for_the_watermark_of_a_table_in_its_own_zone(waiting: Lake, tick: Tick, instance: dg.DagsterInstance) -> None:
    now = utc(2026, 2, 1)
    here, berlin = Automation(instance, DEFS), Automation(instance, DEFS, "report_in_berlin")
    first = tick(SENSOR, None, DEFS)
    assert "no writer says one" in reason(first)
    assert (here.tick(now), berlin.tick(now)) == ([], [])
    # A restart of the sensor loses nothing but its place: the cursor is None from here on.
    for watermark, ours, theirs in (
        (utc(2026, 1, 1, 23, 59), [], []),
        # The day in Berlin overlaps the partition of 31 December and that of 1 January, and both have ended.
        (utc(2026, 1, 2), ["2026-01-01"], ["2026-01-01"]),
        (utc(2026, 1, 2, 23), [], []),
        (utc(2026, 1, 3, 1), ["2026-01-02"], ["2026-01-02"]),
    ):
        write(waiting, 2, watermark)
        tick(SENSOR, None, DEFS)
        assert (here.tick(now), berlin.tick(now)) == (ours, theirs)
        again = tick(SENSOR, None, DEFS)
        assert materialized(again, OURS.source.key) == materialized(again, THEIRS.source.key) == []
        assert (here.tick(now), berlin.tick(now)) == ([], [])
    write(waiting, 2, utc(2026, 1, 2, 12))
    back = tick(SENSOR, None, DEFS)
    assert [(event.asset_key, event.passed) for event in evaluations(back)] == [(OURS.source.key, False), (THEIRS.source.key, False)]
    write(waiting, 3, utc(2026, 1, 4))
    anew = tick(SENSOR, None, DEFS)
    assert materialized(anew, OURS.source.key) == ["2026-01-02", "2026-01-03"]
    assert all(event.passed for event in evaluations(anew))
    assert (here.tick(now), berlin.tick(now)) == (["2026-01-02", "2026-01-03"],) * 2
