"""A real Spark stream writes into an Iceberg table, and a listener reports each commit to a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.reports import CommitReporter
from compaction_pipeline.reports.spark import CommitReportListener
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.optimizer.serving import serving

pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 120
BATCHES = 3


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Look again and again, because Spark tells its listeners of a batch when it likes. The limit only ends a test that hangs."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.1)


def stream_into(warehouse: Warehouse, folder: Path, name: str) -> None:
    """Write all files of a folder into the table, one file in each micro-batch."""
    source = warehouse.spark.readStream.schema("id long, day int").option("maxFilesPerTrigger", 1).json(str(folder))
    options = {"checkpointLocation": str(folder.with_name("checkpoint")), "fanout-enabled": "true"}
    query = source.writeStream.queryName(name).format("iceberg").options(**options).trigger(availableNow=True)
    query.toTable(f"{warehouse.name}.db.t").awaitTermination()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "arrivals"
    made.mkdir()
    for batch in range(BATCHES):
        (made / f"{batch}.json").write_text("".join(f'{{"id": {batch * 10 + one}, "day": {one % 2}}}\n' for one in range(4)))
    return made


def test_every_batch_of_a_stream_wakes_the_look_at_its_table(warehouse: Warehouse, compactions: Compactions, folder: Path) -> None:
    warehouse.sql(
        "CREATE TABLE {t} (id bigint, day int) USING iceberg PARTITIONED BY (day) "
        "TBLPROPERTIES ('format-version'='2', 'write.summary.partition-limit'='10', 'self-optimizing.minor.trigger.file-count'='3')"
    )
    services = compactions.services
    services.explore_catalogs.explore()
    with serving(compactions) as port:
        token = services.keep_tokens.issue(Role.WRITER, "stream").text
        reporter = CommitReporter(f"http://127.0.0.1:{port}", token)
        listener = CommitReportListener(warehouse.spark, f"{warehouse.name}.db.t", reporter, "lake.db.t", "orders")
        warehouse.spark.streams.addListener(listener)
        try:
            stream_into(warehouse, folder, "orders")
            newest: Any = warehouse.table().current_snapshot()
            wait_until(
                lambda: [one.snapshot_id for one in services.stores.reports.reported()] == [newest.snapshot_id],
                "the newest commit is reported",
            )
        finally:
            warehouse.spark.streams.removeListener(listener)
            listener.close()
    [reported] = services.stores.reports.reported()
    assert reported.sequence_number == newest.sequence_number == BATCHES
    assert 1 <= reported.reports <= BATCHES
    assert set(reported.added) == {"day=0", "day=1"}
    sweep = services.sweep_tables.sweep(None, timedelta(minutes=1))
    assert [(refresh.complete, len(refresh.changed)) for refresh in sweep.refreshed] == [(True, 2)]
    assert services.stores.reports.reported() == ()


def test_a_server_that_is_away_disturbs_no_stream(warehouse: Warehouse, folder: Path) -> None:
    warehouse.sql("CREATE TABLE {t} (id bigint, day int) USING iceberg TBLPROPERTIES ('format-version'='2')")
    pauses: list[float] = []
    reporter = CommitReporter("http://127.0.0.1:1", "nobody.listens", tries=2, sleep=pauses.append)
    listener = CommitReportListener(warehouse.spark, f"{warehouse.name}.db.t", reporter, "lake.db.t")
    warehouse.spark.streams.addListener(listener)
    try:
        stream_into(warehouse, folder, "alone")
        wait_until(lambda: len(pauses) > 0, "the listener has tried")
    finally:
        warehouse.spark.streams.removeListener(listener)
        listener.close()
    assert warehouse.sql("SELECT count(*) FROM {t}")[0][0] == 4 * BATCHES
