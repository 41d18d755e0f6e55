"""What `status` shows: tables, worst nodes, work and records."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import SHOWN
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.defs.values import NOW, ORDERS, record, task
from compaction_pipeline_tests.services.insight.desk import WATCHED, Desk, due


def test_an_empty_state_is_an_answer(desk: Desk) -> None:
    status = desk.status.status()
    assert (status.tables, status.worst, status.records, status.nodes, status.due) == ((), (), (), 0, 0)
    assert status.queue.open == 0


def test_a_due_node_is_shown_as_due_unless_the_table_may_not_be_compacted(desk: Desk) -> None:
    desk.table(ORDERS, due(1))
    desk.table(WATCHED, due(1, WATCHED))
    health = {node.table: (node.health, node.reason) for node in desk.status.nodes()}
    assert health[ORDERS] == (HealthStatus.DUE, "because 1")
    assert health[WATCHED] == (HealthStatus.WAITING, "because 1; the catalog is only observed")
    desk.stores.switches.pause(ORDERS, True)
    assert desk.tables.table(ORDERS).nodes[0].health is HealthStatus.WAITING


def test_a_node_whose_files_have_changed_since_its_verdict_is_not_due(desk: Desk) -> None:
    moved = replace(due(1), metrics=replace(due(1).metrics, data_files=1, small_data_files=0))
    desk.table(ORDERS, moved, due(2))
    desk.stores.commits.mark_done(ORDERS, [(due(2).node, CompactionType.MINOR)], NOW + timedelta(seconds=1))
    nodes = desk.status.nodes()
    assert {node.health for node in nodes} == {HealthStatus.WAITING}
    reason = {node.reason for node in nodes if node.key == moved.key}.pop()
    assert reason == "because 1; its files changed since, and the next tick judges it again"


def test_worst_nodes_come_first_and_are_few(desk: Desk) -> None:
    desk.table(ORDERS, *(due(number) for number in range(1, 29)))
    assert len(desk.status.nodes()) == 28
    assert len(desk.status.status().worst) == SHOWN
    assert desk.status.status().due == 28


def test_unsettled_records_are_shown(desk: Desk) -> None:
    desk.stores.records.save(replace(record("r1", status=RecordStatus.UNKNOWN), ended_at=None))
    desk.stores.records.save(record("r2"))
    assert [item.record_id for item in desk.status.status().unsettled] == ["r1"]


def test_a_table_says_the_same_of_its_open_tasks_wherever_it_is_shown(desk: Desk) -> None:
    desk.table(ORDERS, due(1))
    desk.stores.tasks.insert([task("t1", status=TaskStatus.INIT)], [], NOW)
    assert desk.status.status().tables[0].reason == "1 task waits"
    polled = desk.stores.tasks.poll(None, "me", NOW, timedelta(minutes=1))
    assert polled is not None
    assert polled.current_attempt_id is not None
    assert desk.tables.tables()[0].reason == "1 task is being merged"
    desk.stores.tasks.complete(MergeResult(polled.task_id, polled.current_attempt_id), NOW)
    shown = [desk.status.status().tables[0], desk.tables.tables()[0], desk.tables.table(ORDERS).overview]
    assert {(table.health, table.reason) for table in shown} == {(HealthStatus.WAITING, "1 merged task waits for the commit")}
    assert desk.status.nodes()[0].health is HealthStatus.WAITING
