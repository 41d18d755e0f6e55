"""Files that break a rule are refused at once: exit code 4, a reason code, one attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.opened import opened


def _rewrite(table: Table, rows: pa.Table, part: str) -> None:
    """Overwrite a live file with other rows, as a careless job does."""
    path = next(Path(table.location().removeprefix("file://")).rglob(f"*{part}*.parquet"))
    pq.write_table(rows, path)


def _without_ids(table: Table) -> None:
    _rewrite(table, pa.table({"id": pa.array([0], pa.int64()), "bucket": pa.array([0], pa.int32())}), "data-")


def _of_another_count(table: Table) -> None:
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    _rewrite(table, pa.table({"id": pa.array([0, 10, 20], pa.int64())}, schema=pa.schema([field])), "delete-")


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [(_without_ids, "carries no field ids and the table has no"), (_of_another_count, "holds 3 rows, but its manifest entry says 1")],
)
def test_a_file_that_breaks_a_rule_is_refused_after_one_attempt(desk: Desk, breaks: object, reason: str) -> None:
    table = desk.table(files=3, buckets=(0,))
    desk.delete(table, 0, 10)
    assert callable(breaks)
    breaks(table)
    desk.add_catalog()
    before = table.refresh().metadata.current_snapshot_id
    answer = desk.json("compact", TABLE, "--type", "full", code=4)
    assert (answer["reason_code"], answer["exit_code"], answer["committed"]) == ("REFUSED", 4, 0)
    assert reason in answer["reason"]
    assert table.refresh().metadata.current_snapshot_id == before
    services = opened()
    (task,) = services.stores.tasks.tasks(statuses=(TaskStatus.FAILED,))
    services.close()
    assert (task.attempt, task.max_attempts) == (1, 4)
    # A person who looks again later sees the same reason.
    said = desk.type("table", "show", TABLE, "--json")
    assert reason in json.dumps(json.loads(said.stdout))


def test_a_refusal_is_stored_with_its_task_and_shown_again(desk: Desk) -> None:
    table = desk.table(files=12, buckets=(0,))
    _without_ids(table)
    desk.add_catalog()
    first = desk.json("compact", TABLE, code=4)
    services = opened()
    (task,) = services.stores.tasks.tasks(statuses=(TaskStatus.FAILED,))
    services.close()
    assert task.end_reason is EndReason.REFUSED
    again = desk.json("compact", TABLE, code=4)
    assert (first["reason_code"], again["reason_code"]) == ("REFUSED", "REFUSED")
    assert "carries no field ids" in again["reason"]
    node = desk.json("status")["worst_nodes"][0]
    assert "was refused, and no further attempt can merge it as it is" in node["reason"]
