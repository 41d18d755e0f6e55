"""What the program shows of tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.defs.values import NOW, ORDERS, day, task
from compaction_pipeline_tests.services.insight.desk import Desk


def test_running_and_waiting_tasks_are_counted(desk: Desk) -> None:
    pending = [_pending(name) for name in ("t1", "t2", "t3")]
    assert desk.stores.tasks.insert(pending, (), NOW)
    assert desk.stores.tasks.poll(None, "me", NOW, timedelta(minutes=1)) is not None
    queue = desk.tasks.queue_counts()
    assert (queue.pending, queue.executing, queue.open) == (2, 1, 3)
    assert [item.owner for item in desk.status.status().executing] == ["me"]


def test_merged_tasks_are_those_that_no_commit_has_claimed(desk: Desk) -> None:
    assert desk.stores.tasks.insert([_pending("t1"), _pending("t2")], (), NOW)
    for _ in range(2):
        polled = desk.stores.tasks.poll(None, "me", NOW, timedelta(minutes=1))
        assert polled is not None
        desk.stores.tasks.complete(MergeResult(polled.task_id, polled.current_attempt_id), NOW)
    assert {item.task_id for item in desk.tasks.merged(ORDERS)} == {"t1", "t2"}
    desk.stores.tasks.claim(ORDERS, RecordId("r1"), [TaskId("t1")])
    assert [item.task_id for item in desk.tasks.merged(ORDERS)] == ["t2"]


@pytest.mark.parametrize("statuses", [(), (TaskStatus.FAILED,)])
def test_only_a_table_that_nobody_knows_is_refused(desk: Desk, statuses: tuple[TaskStatus, ...]) -> None:
    desk.table(ORDERS)
    assert desk.tasks.tasks(ORDERS, statuses) == ()
    for unknown in ("lake.shop.nope", "nope.shop.orders"):
        with pytest.raises(NotFoundError, match="nope"):
            desk.tasks.tasks(TableIdentifier.parse(unknown), statuses)
    # A table that was dropped may still have tasks.
    dropped = replace(_pending("t1"), table=TableIdentifier("lake", ("shop",), "dropped"))
    assert desk.stores.tasks.insert([dropped], (), NOW)
    assert [each.task_id for each in desk.tasks.tasks(dropped.table)] == ["t1"]


def test_tasks_name_their_nodes(desk: Desk) -> None:
    assert desk.stores.tasks.insert([_pending("t1", 1), _pending("t2", 2), _pending("t3", 2)], (), NOW)
    assert desk.tasks.nodes([TaskId("t2"), TaskId("t3")]) == {day(2)}
    with pytest.raises(NotFoundError):
        desk.tasks.nodes([TaskId("t4")])


def _pending(task_id: str, number: int = 1) -> CompactionTask:
    return replace(task(task_id, number, TaskStatus.PENDING), attempt=0, result=None)
