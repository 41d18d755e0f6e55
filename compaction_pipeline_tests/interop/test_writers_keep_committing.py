"""Compacts without pause while Spark, and then Flink, commits upserts and deletes. At the end all rows are those of the change log.

Iceberg refuses a Spark statement that deletes by position from a file when a compaction, ours or another, has replaced that file
meanwhile (see OVERTAKEN). The test counts such statements and runs them again, as a job does. Any other failure of a writer fails the
test. Iceberg never refuses equality deletes, so it never refuses Flink's streams.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from compaction_pipeline_tests.interop.flink import SHAPES, Flink, expected_rows
from compaction_pipeline_tests.interop.racing import Say, Tally, compact_while, working
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.interop.written_by_spark import SparkUpserts

pytestmark = pytest.mark.interop

LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


def several(tally: Tally) -> bool:
    return tally.committed > 2


@pytest.mark.parametrize("seconds", [12, pytest.param(300, marks=LONG)])
def test_rows_stay_exact_while_spark_goes_on(seconds: int, warehouse: Warehouse, lagging_compactions: Compactions, say: Say) -> None:
    upserts = SparkUpserts(warehouse, Random(seconds))
    for _ in range(3):
        upserts.write()
    with working(upserts.write) as running:
        tally = compact_while(running, lagging_compactions, several, seconds)
    say(f"Spark, {seconds} s: {upserts.commits} statements, {upserts.overtaken} overtaken and run again; {tally}")
    assert several(tally)
    warehouse.check(upserts.rows.values())


@pytest.mark.parametrize(("shape", "seconds"), [("partitioned", 12), *(pytest.param(shape, 300, marks=LONG) for shape in SHAPES)])
def test_no_stream_of_flink_fails_and_its_rows_stay_exact(
    shape: str, seconds: int, warehouse: Warehouse, lagging_compactions: Compactions, flink_jvm: Any, say: Say
) -> None:
    flink = Flink(flink_jvm, warehouse.name, warehouse.flink_catalog)
    flink.create("t", shape)
    started = time.monotonic()
    stream = flink.stream(["t"], 200, warehouse.folder / "savepoints")
    tally = compact_while(lambda: stream.running, lagging_compactions, several, seconds)
    stream.stop()
    last = warehouse.table("taken").scan().count()
    operations = [snapshot.summary.operation.value for snapshot in warehouse.table().metadata.snapshots]
    commits = len(operations) - operations.count("replace")
    say(f"Flink, {shape}, {time.monotonic() - started:.0f} s: {last} changes, {commits} commits of other kinds than replace; {tally}")
    assert several(tally)
    warehouse.check(expected_rows(last))
