"""Upkeep removes only files, records and tasks that nothing can need any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.services.upkeep.expire_records import ExpireRecords
from compaction_pipeline.services.upkeep.forget_dropped import ForgetDropped
from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables
from compaction_pipeline.services.upkeep.remove_leftovers import RemoveLeftovers
from compaction_pipeline_tests.defs.values import NOW, ORDERS, ago, day, head, live_file, output, record, task

DEVICES = TableIdentifier("lake", ("shop",), "devices")
FOLDER = "s3://lake/orders/data"


@dataclass
class World:
    """A fake catalog and storage: the uuid of each table, all files, and the files that snapshots list."""

    tables: dict[TableIdentifier, str] = field(default_factory=lambda: {ORDERS: "uuid"})
    files: list[str] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    down: bool = False
    landing: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def list_tables(self, catalog: str) -> Sequence[TableIdentifier]:
        if self.down:
            raise StorageUnavailable("catalog lake did not answer")
        return sorted(table for table in self.tables if table.catalog == catalog)

    def head(self, table: TableIdentifier) -> Any:
        if self.down:
            raise StorageUnavailable("catalog lake did not answer")
        if table not in self.tables:
            raise NotFoundError(f"table {table} does not exist")
        return replace(head(), table=table, table_uuid=self.tables[table])

    def leftovers(self, table: TableIdentifier, task_ids: Sequence[str], record_ids: Sequence[str] = ()) -> Sequence[str]:
        return [path for path in self.files if any(one in path for one in (*task_ids, *record_ids))]

    def may_land(self, table: TableIdentifier, record_ids: Sequence[str]) -> Sequence[str]:
        self.asked += record_ids
        return [one for one in record_ids if one in self.landing]

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        gone = [path for path in paths if path not in self.listed]
        self.files = [path for path in self.files if path not in gone]
        return gone


class Upkeep:
    def __init__(self, stores: Stores) -> None:
        self.world = World()
        self.stores = stores
        self.stores.catalogs.add(CatalogEntry("lake", {}))
        self.add_table(ORDERS)
        self.policy: str | None = None
        self.service = self.keeping(timedelta(days=30))

    def keeping(self, ttl: timedelta) -> MaintainTables:
        stores, world = self.stores, cast(Any, self.world)
        leases = Leases(stores.leases, lambda: NOW, lambda renew: nullcontext(), lambda: "test#1")
        dropped = ForgetDropped(stores.catalogs, stores.tables, stores.index, stores.tasks, stores.records, world)
        leftovers = RemoveLeftovers((stores.tasks, stores.records), world, world, leases, why_not=lambda table: self.policy)
        outlived = ExpireRecords(stores.tasks, stores.records, stores.costs, leftovers.still_asked, lambda: NOW, ttl)
        return MaintainTables(stores.tables, dropped, leftovers, outlived)

    def add_table(self, table: TableIdentifier) -> None:
        self.stores.index.add(table)

    def end(
        self, task_id: str, status: TaskStatus, outputs: Sequence[str] = (), uuid: str = "uuid", table: TableIdentifier = ORDERS
    ) -> None:
        """Bring a task to this status through the store, as the pipeline does."""
        pending: CompactionTask = replace(
            task(task_id, status=TaskStatus.PENDING, table=table), table_uuid=uuid, attempt=0, result=None, max_attempts=1
        )
        # The store refuses a task whose input is in another open task, so each task gets its own input.
        pending = replace(pending, work=replace(pending.work, inputs=(replace(live_file(), path=f"input-of-{task_id}"),)))
        tasks = self.stores.tasks
        assert tasks.insert([pending], (), NOW)
        if status is TaskStatus.CANCELED:
            tasks.cancel([task_id], EndReason.REPLACED, "replaced", NOW)
            return
        polled = tasks.poll(None, "me", NOW, timedelta(minutes=1), [task_id])
        assert polled is not None
        if status is TaskStatus.EXECUTING:
            return
        error = "no memory" if status is TaskStatus.FAILED else None
        files = tuple(replace(output(1), path=path) for path in outputs)
        tasks.complete(MergeResult(task_id, polled.attempt_id or "", outputs=files, error=error), NOW)
        if status is TaskStatus.COMMITTED:
            assert tasks.claim(table, f"r-{task_id}", [task_id])
            tasks.commit([task_id], NOW)


@pytest.fixture
def upkeep(stores: Stores) -> Upkeep:
    return Upkeep(stores)


def path(name: str) -> str:
    return f"{FOLDER}/{name}.parquet"


def test_leftovers_of_failed_and_canceled_tasks_are_deleted(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.end("p-2", TaskStatus.CANCELED)
    upkeep.world.files = [path("a1-p-1-x-0"), path("a1-p-2-x-0"), path("written-by-flink")]
    done = upkeep.service.maintain()
    assert done.leftovers == {ORDERS: (path("a1-p-1-x-0"), path("a1-p-2-x-0"))}
    assert done.files_removed == 2
    assert upkeep.world.files == [path("written-by-flink")]


def test_a_policy_of_the_catalog_keeps_leftovers_and_tells_them(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-1-x-0")]
    upkeep.policy = "policy of the catalog: no clean-up"
    done = upkeep.service.maintain()
    assert upkeep.world.files == [path("a1-p-1-x-0")]
    assert "policy of the catalog: no clean-up" in done.skipped[ORDERS]
    assert path("a1-p-1-x-0") in done.skipped[ORDERS]
    upkeep.policy = None
    assert upkeep.service.maintain().leftovers == {ORDERS: (path("a1-p-1-x-0"),)}


def test_of_a_committed_task_only_files_of_lost_attempts_are_deleted(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.COMMITTED, outputs=[path("a2-p-1-x-0")])
    # The listing may name the file in another form than the manifest, and its snapshot may have expired by mistake.
    upkeep.world.files = [path("a1-p-1-x-0"), "s3a://lake/orders/data/a2-p-1-x-0.parquet"]
    upkeep.service.maintain()
    assert upkeep.world.files == ["s3a://lake/orders/data/a2-p-1-x-0.parquet"]


def test_a_file_that_a_snapshot_lists_stays(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-1-x-0")]
    upkeep.world.listed = {path("a1-p-1-x-0")}
    assert upkeep.service.maintain().leftovers == {}


@pytest.mark.parametrize("status", [TaskStatus.EXECUTING, TaskStatus.PREPARED])
def test_files_of_tasks_that_have_not_ended_stay(upkeep: Upkeep, status: TaskStatus) -> None:
    upkeep.end("p-12", status, outputs=[path("a1-p-12-x-0")])
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-12-x-0")]
    assert upkeep.service.maintain().leftovers == {}
    assert upkeep.world.files == [path("a1-p-12-x-0")]


@pytest.mark.parametrize("status", [RecordStatus.OPEN, RecordStatus.UNKNOWN])
def test_nothing_is_deleted_while_a_record_of_the_table_may_still_land(upkeep: Upkeep, status: RecordStatus) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-1-x-0")]
    upkeep.stores.records.save(replace(record("r1", status=status), ended_at=None))
    assert upkeep.service.maintain().leftovers == {}
    assert upkeep.world.files


def test_tasks_of_a_table_that_was_recreated_lose_no_file(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED, uuid="the old table's, renamed away and alive in the same folder")
    upkeep.world.files = [path("a1-p-1-x-0")]
    assert upkeep.service.maintain().leftovers == {}


METADATA = ["s3://lake/orders/metadata/r1-1-0a1b2c3d-m0.avro", "s3://lake/orders/metadata/snap-77-1-r1.avro"]


def test_files_of_a_dead_commit_are_deleted_by_its_record_id(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.PREPARED, outputs=[path("a1-p-1-x-0")])
    upkeep.stores.records.save(record("r1", ["p-1"], RecordStatus.FAILED, answered=True))
    upkeep.world.files = [path("a1-p-1-x-0"), *METADATA, "s3://lake/orders/metadata/snap-78-1-r2.avro"]
    assert upkeep.service.maintain().leftovers == {ORDERS: tuple(METADATA)}
    assert upkeep.world.files == [path("a1-p-1-x-0"), "s3://lake/orders/metadata/snap-78-1-r2.avro"]


def test_files_of_an_unanswered_commit_stay_for_a_day_and_are_checked_once_more(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    files = [path("a1-p-1-x-0"), *METADATA]
    upkeep.world.files = list(files)
    upkeep.stores.records.save(record("r1", ["p-1"], RecordStatus.FAILED, ended_at=ago(hours=23)))
    assert upkeep.service.maintain().leftovers == {}
    assert upkeep.world.asked == []
    upkeep.stores.records.save(record("r1", ["p-1"], RecordStatus.FAILED, ended_at=ago(hours=24)))
    # After a rollback the late request may be carried out again.
    upkeep.world.landing = {"r1"}
    assert upkeep.service.maintain().leftovers == {}
    assert (upkeep.world.asked, upkeep.world.files) == (["r1"], files)
    upkeep.world.landing = set()
    assert upkeep.service.maintain().leftovers == {ORDERS: tuple(files)}


def test_metadata_of_a_commit_that_landed_stays_whatever_this_metadata_lists(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.COMMITTED, outputs=[path("a1-p-1-x-0")])
    upkeep.stores.records.save(record("r1", ["p-1"], answered=True))
    upkeep.world.files = list(METADATA)
    assert upkeep.service.maintain().leftovers == {}
    assert upkeep.world.files == METADATA


def test_files_that_an_earlier_request_of_a_landed_commit_put_in_stay_while_it_may_arrive(upkeep: Upkeep) -> None:
    # The first request had both tasks and got no answer. The second one landed without p-2, which met a conflict.
    upkeep.end("p-1", TaskStatus.COMMITTED, outputs=[path("a1-p-1-x-0")])
    upkeep.end("p-2", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-2-x-0")]
    upkeep.stores.records.save(record("r1", ["p-1", "p-2"], ended_at=ago(hours=23)))
    assert upkeep.service.maintain().leftovers == {}
    upkeep.stores.records.save(record("r1", ["p-1", "p-2"], ended_at=ago(hours=24)))
    upkeep.world.landing = {"r1"}
    assert upkeep.service.maintain().leftovers == {}
    upkeep.world.landing = set()
    assert upkeep.service.maintain().leftovers == {ORDERS: (path("a1-p-2-x-0"),)}


def test_files_of_a_commit_on_a_table_that_was_recreated_stay(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED, uuid="the old table's, renamed away and alive in the same folder")
    upkeep.stores.records.save(record("r1", ["p-1"], RecordStatus.FAILED, answered=True))
    upkeep.world.files = list(METADATA)
    assert upkeep.service.maintain().leftovers == {}


def test_old_records_and_tasks_expire_and_young_ones_stay(upkeep: Upkeep) -> None:
    records = upkeep.stores.records
    records.save(replace(record("old"), created_at=ago(days=31), ended_at=ago(days=31)))
    records.save(replace(record("open", status=RecordStatus.OPEN), created_at=ago(days=31), ended_at=None))
    records.save(record("young"))
    done = upkeep.service.maintain()
    assert done.records_expired == 1
    assert {item.record_id for item in records.records()} == {"open", "young"}


def test_a_record_expires_by_its_end_not_by_its_beginning(upkeep: Upkeep) -> None:
    # The outcome was unknown for a month, and was settled an hour ago.
    upkeep.stores.records.save(replace(record("r1", ["p-1"], RecordStatus.FAILED), created_at=ago(days=31), ended_at=ago(hours=1)))
    assert upkeep.service.maintain().records_expired == 0


@pytest.mark.parametrize(("hours", "expired"), [(23, 0), (24, 1)])
def test_no_record_expires_while_its_request_may_arrive(upkeep: Upkeep, hours: int, expired: int) -> None:
    upkeep.service = upkeep.keeping(timedelta(hours=2))
    unanswered = replace(record("r1", ["p-1"], RecordStatus.FAILED), created_at=ago(hours=hours), ended_at=ago(hours=hours))
    upkeep.stores.records.save(unanswered)
    upkeep.stores.records.save(replace(unanswered, record_id="r2", answered=True))
    done = upkeep.service.maintain()
    assert done.records_expired == 1 + expired
    assert [one.record_id for one in upkeep.stores.records.records()] == ["r1"] * (1 - expired)


def test_an_unanswered_record_stays_as_long_as_its_tasks(upkeep: Upkeep) -> None:
    upkeep.service = upkeep.keeping(timedelta(days=2))
    # Another record claimed its task, and the task failed later.
    upkeep.end("p-1", TaskStatus.FAILED)
    unanswered = replace(record("r1", ["p-1"], RecordStatus.FAILED), created_at=ago(days=3), ended_at=ago(days=3))
    upkeep.stores.records.save(unanswered)
    upkeep.stores.records.save(replace(unanswered, record_id="r2", answered=True))
    upkeep.world.files = [path("a1-p-1-x-0")]
    upkeep.world.landing = {"r1"}
    assert upkeep.service.maintain().records_expired == 1
    assert upkeep.service.maintain().leftovers == {}
    assert upkeep.world.files


def test_a_dropped_table_is_forgotten_and_its_records_stay(upkeep: Upkeep) -> None:
    upkeep.add_table(DEVICES)
    upkeep.stores.index.save_figures(DEVICES, [MeasuredNode(day(1), NodeMetrics(), 7)], NOW)
    upkeep.stores.records.save(record("r1", table=DEVICES))
    done = upkeep.service.maintain()
    assert done.forgotten == (DEVICES,)
    assert [state.table for state in upkeep.stores.tables.states()] == [ORDERS]
    assert [item.record_id for item in upkeep.stores.records.records(DEVICES)] == ["r1"]


def test_a_dropped_table_with_a_running_task_is_not_forgotten_yet(upkeep: Upkeep) -> None:
    upkeep.add_table(DEVICES)
    upkeep.end("p-1", TaskStatus.EXECUTING, table=DEVICES)
    done = upkeep.service.maintain()
    assert done.forgotten == ()
    assert "has not ended" in done.skipped[DEVICES]


def test_a_catalog_that_does_not_answer_loses_nothing(upkeep: Upkeep) -> None:
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.world.files = [path("a1-p-1-x-0")]
    upkeep.world.down = True
    done = upkeep.service.maintain()
    assert done.forgotten == ()
    assert done.skipped == {ORDERS: "catalog lake did not answer"}
    assert upkeep.world.files
    assert upkeep.stores.tables.states()


def test_one_bad_table_does_not_stop_the_others(upkeep: Upkeep) -> None:
    class Broken(World):
        def leftovers(self, table: TableIdentifier, task_ids: Sequence[str], record_ids: Sequence[str] = ()) -> Sequence[str]:
            if table == DEVICES:
                raise StorageUnavailable("no permission")
            return super().leftovers(table, task_ids, record_ids)

    upkeep.world.__class__ = Broken
    upkeep.add_table(DEVICES)
    upkeep.world.tables[DEVICES] = "uuid"
    upkeep.end("p-1", TaskStatus.FAILED)
    upkeep.end("p-2", TaskStatus.FAILED, table=DEVICES)
    upkeep.world.files = [path("a1-p-1-x-0")]
    done = upkeep.service.maintain()
    skipped: Mapping[TableIdentifier, str] = done.skipped
    assert skipped == {DEVICES: "no permission"}
    assert done.files_removed == 1
