"""Every reader of queues does this: SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.queue.queue_work import EndedWork, MergedTotals, QueueWork
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, make_groups, prepared
from compaction_pipeline_tests.builders import NOW, TABLE

LATER = NOW + timedelta(minutes=1)
OLDER = NOW - timedelta(hours=1)


def test_without_tasks_no_queue_is_named(stores: Stores) -> None:
    assert stores.queues.waiting() == ()
    assert stores.queues.works(OLDER) == {}


def test_only_queues_with_a_task_that_a_worker_may_take_wait(stores: Stores) -> None:
    stores.index.add(TABLE)
    make_groups(stores, "a", "b", "c", "taken")
    tasks = [example(name, queue=name) for name in ("b", "a", "taken")]
    other = example("c", queue="c", table=TABLE.__class__("lake", ("db",), "other"))
    stores.index.add(other.table)
    stores.tasks.insert([*tasks, other], [], NOW)
    assert stores.tasks.poll("taken", "me", NOW, LEASE) is not None
    assert stores.queues.waiting() == ("a", "b", "c")
    stores.switches.pause(TABLE, True)
    assert stores.queues.waiting() == ("c",)


def test_the_tasks_of_a_queue_are_counted_by_what_they_wait_for(stores: Stores) -> None:
    make_groups(stores, "q", "other")
    names = ("first", "second", "runs", "again", "lost for good", "merged")
    most = {"lost for good": 1}
    made = [example(name, queue="q", created_at=OLDER if name == "first" else NOW, max_attempts=most.get(name, 4)) for name in names]
    stores.tasks.insert([*made, example("elsewhere", queue="other", created_at=NOW)], [], NOW)
    for name in names[2:]:
        assert stores.tasks.poll(None, "me", NOW, LEASE, [name]) is not None
    for name in ("again", "lost for good"):
        stores.tasks.complete(failed(stores.tasks.task(name)), LATER, timedelta(minutes=1))
    merged = stores.tasks.task("merged")
    stores.tasks.complete(prepared(merged), LATER)
    counted = QueueWork(
        "q",
        pending=2,
        executing=1,
        prepared=1,
        retrying=1,
        failed=1,
        waiting_since=OLDER,
        merged=1,
        merged_bytes=merged.work.input_bytes,
    )
    assert stores.queues.works(LATER) == {"q": counted, "other": QueueWork("other", pending=1, waiting_since=NOW)}
    assert stores.queues.works(LATER + timedelta(seconds=1))["q"].merged == 0


def test_merged_tasks_are_counted_by_who_merged_them(stores: Stores) -> None:
    make_groups(stores, "q", "other")
    queues = {"early": "q", "late": "q", "elsewhere": "other", "failed": "q", "runs": "q"}
    stores.tasks.insert([example(name, queue=queue) for name, queue in queues.items()], [], NOW)
    for name, owner in (("early", "me"), ("late", "me"), ("elsewhere", "you"), ("failed", "you"), ("runs", "nobody")):
        assert stores.tasks.poll(None, owner, NOW, LEASE, [name]) is not None
    size = stores.tasks.task("early").work.input_bytes
    assert stores.queues.merged_by(OLDER) == {}
    stores.tasks.complete(prepared(stores.tasks.task("early")), NOW)
    stores.tasks.complete(failed(stores.tasks.task("failed")), NOW)
    for name in ("late", "elsewhere"):
        stores.tasks.complete(prepared(stores.tasks.task(name)), LATER)
    assert stores.queues.merged_by(NOW) == {"me": MergedTotals(2, 2 * size), "you": MergedTotals(1, size)}
    assert stores.queues.merged_by(LATER) == {"me": MergedTotals(1, size), "you": MergedTotals(1, size)}
    stores.tasks.claim(TABLE, "r1", ["late"])
    stores.tasks.commit(["late"], LATER)
    assert stores.queues.merged_by(LATER)["me"] == MergedTotals(1, size), "a commit does not end the account of the merge"


def test_paused_tasks_do_not_count_as_waiting(stores: Stores) -> None:
    stores.index.add(TABLE)
    make_groups(stores, "q")
    stores.tasks.insert([example("t", queue="q")], [], NOW)
    stores.switches.pause(TABLE, True)
    assert stores.queues.works(OLDER) == {"q": QueueWork("q", paused=1)}


def test_refused_reports_are_counted_by_their_queue(stores: Stores) -> None:
    make_groups(stores, "q")
    stores.tasks.insert([example("t", queue="q")], [], NOW)
    for _ in range(2):
        assert stores.tasks.poll("q", "me", NOW, LEASE) is not None
        stores.tasks.complete(replace(failed(stores.tasks.task("t")), end_reason=EndReason.REPORT_REFUSED), LATER)
    assert stores.queues.works(LATER)["q"].refused_reports == 2
    assert stores.queues.works(LATER + timedelta(seconds=1))["q"].refused_reports == 0


def test_what_ended_is_counted_by_the_time_of_its_end(stores: Stores) -> None:
    make_groups(stores, "q")
    stores.tasks.insert([example("merged", queue="q"), example("again", queue="q")], [], NOW)
    for name in ("merged", "again"):
        assert stores.tasks.poll(None, "me", NOW, LEASE, [name]) is not None
    stores.tasks.complete(prepared(stores.tasks.task("merged")), LATER)
    stores.tasks.complete(failed(stores.tasks.task("again")), LATER, timedelta(minutes=1))
    for record_id, status in (("r1", RecordStatus.COMMITTED), ("r2", RecordStatus.FAILED), ("r3", RecordStatus.OPEN)):
        ended_at = None if status is RecordStatus.OPEN else LATER
        stores.records.save(CompactionRecord(record_id, TABLE, status, NOW, ("t",), ended_at=ended_at))
    size = stores.tasks.task("merged").work.input_bytes
    assert stores.queues.ended(NOW, LATER) == EndedWork(
        {("q", EndReason.MERGED): 1, ("q", EndReason.FAILED): 1}, {"q": size}, {"COMMITTED": 1, "FAILED": 1}
    )
    assert stores.queues.ended(LATER, LATER + LEASE) == EndedWork()
