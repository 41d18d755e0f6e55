"""How a task stands for somebody who waits for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.queue.awaited import failed_for_good, held_elsewhere, is_rejected, is_replaced, left_over, waits_for_turn
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.builders import NOW, TABLE, node, task

PENDING, EXECUTING, FAILED = task(), task(status=TaskStatus.EXECUTING), task(status=TaskStatus.FAILED)
RETRIED = task(status=TaskStatus.FAILED, retry_at=NOW)
REJECTED = task(status=TaskStatus.FAILED, record_id=RecordId("r"))
REPLACED = task(status=TaskStatus.CANCELED, end_reason=EndReason.REPLACED)
PREPARED, COMMITTED = task(status=TaskStatus.PREPARED), task(status=TaskStatus.COMMITTED, record_id=RecordId("r"))


@pytest.mark.parametrize(
    ("one", "turn", "failed", "rejected", "replaced"),
    [
        pytest.param(PENDING, True, False, False, False, id="waits"),
        pytest.param(EXECUTING, False, False, False, False, id="is merged"),
        pytest.param(RETRIED, True, False, False, False, id="is tried again later"),
        pytest.param(FAILED, False, True, False, False, id="failed for good"),
        pytest.param(PREPARED, False, False, False, False, id="is merged and not committed"),
        pytest.param(REJECTED, False, False, True, False, id="a commit rejected it"),
        pytest.param(REPLACED, False, False, False, True, id="a newer plan took its files"),
        pytest.param(COMMITTED, False, False, False, False, id="is committed"),
    ],
)
def test_each_task_stands_in_one_way(one: CompactionTask, turn: bool, failed: bool, rejected: bool, replaced: bool) -> None:
    assert (waits_for_turn(one), failed_for_good(one), is_rejected(one), is_replaced(one)) == (turn, failed, rejected, replaced)


def of(task_id: str, day: int, group: str = "", **changes: object) -> CompactionTask:
    return task(task_id, work=replace(task().work, node=node(day), group=group), **changes)


def test_what_is_left_over_of_some_nodes_has_the_whole_task_groups() -> None:
    one, two, three = of("one", 1, "g"), of("two", 2, "g"), of("three", 3)
    ended = of("ended", 1, status=TaskStatus.FAILED)
    assert left_over([one, two, three, ended], None) == [one, two, three]
    assert left_over([one, two, three, ended], {node(1)}) == [one, two]
    assert left_over([one, two, three, ended], {node(3)}) == [three]
    assert left_over([ended], None) == []


def running(task_id: str, day: int, owner: str, seconds: int = 60) -> CompactionTask:
    return of(task_id, day, status=TaskStatus.EXECUTING, owner=owner, lease_expires_at=NOW + timedelta(seconds=seconds))


def test_whoever_holds_nodes_is_named_with_the_tasks_and_how_many_nodes_these_hold() -> None:
    ends = f"(its lease ends at {NOW + timedelta(seconds=60):%H:%M:%S} UTC unless renewed)"
    assert held_elsewhere(TABLE, [running("one", 1, "process 7 on a#x")]) == (
        f"process 7 on a is merging 1 task of {TABLE} {ends}; 1 node is held by task one; run again after that"
    )
    several = [running("one", 1, "process 7 on a#x", 30), running("two", 1, "process 7 on a#y"), running("three", 2, "optimizer o")]
    assert held_elsewhere(TABLE, several) == (
        f"process 7 on a is merging 2 tasks of {TABLE} {ends}; optimizer o is merging 1 task of {TABLE} {ends}; "
        "2 nodes are held by tasks one, three, two; run again after that"
    )
    assert held_elsewhere(TABLE, []) is None


def test_of_many_tasks_only_some_are_named_and_the_others_are_counted() -> None:
    text = held_elsewhere(TABLE, [running(f"t{number:04}", number, f"optimizer {number}") for number in range(1_205)])
    assert text is not None
    assert "; and 1,200 more; 1205 nodes are held by tasks t0000, t0001, t0002, t0003, t0004, and 1,200 more; run again after that" in text
    assert text.count("is merging") == 5
