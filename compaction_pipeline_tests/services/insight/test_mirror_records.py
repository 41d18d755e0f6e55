"""Which records Dagster does not know yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.services.insight.mirror_records import MirrorRecords
from compaction_pipeline_tests.defs.values import NOW, ORDERS, record, task


def test_a_record_is_unmirrored_until_its_events_are_stored(stores: Stores) -> None:
    mirror = MirrorRecords(stores.tasks, stores.records, stores.node_keys)
    stores.records.save(replace(record("r2"), created_at=NOW))
    stores.records.save(record("r1"))
    assert [item.record_id for item in mirror.untold(10)] == ["r1", "r2"]
    assert [item.record_id for item in mirror.untold(1)] == ["r1"]
    mirror.told([RecordId("r1")])
    assert [item.record_id for item in mirror.untold(10)] == ["r2"]


def test_the_tasks_of_a_record_are_those_that_it_claimed(stores: Stores) -> None:
    assert stores.tasks.insert([replace(task(name, status=TaskStatus.PENDING), attempt=0, result=None) for name in ("t1", "t2")], (), NOW)
    polled = stores.tasks.poll(None, "me", NOW, timedelta(minutes=1))
    assert polled is not None
    stores.tasks.complete(MergeResult(polled.task_id, polled.current_attempt_id), NOW)
    stores.tasks.claim(ORDERS, RecordId("r1"))
    ((key, tasks),) = MirrorRecords(stores.tasks, stores.records, stores.node_keys).tasks(record("r1")).items()
    assert [item.task_id for item in tasks] == [polled.task_id]
    assert stores.node_keys.keys(ORDERS, [polled.work.node]) == {polled.work.node: key}
