from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY, RecordStatus
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.drain import Drain, Ends
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.index import Reading
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline_tests.builders import indexed
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.broken_merges import Broken
from compaction_pipeline_tests.services.heard import Between, Heard
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.in_hand import InHand
from compaction_pipeline_tests.services.serving import serving

FULL = PlanRequest(types=(CompactionType.FULL,), force=True)


class Away(Broken):
    """An engine that starts `times` times, and then fails to start."""

    def __init__(self, error: Exception, times: int = 0) -> None:
        self._error = error
        self._times = times
        self._engine = InProcessMergeEngine()

    def ready(self) -> None:
        self._times -= 1
        if self._times < 0:
            raise self._error

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        return self._engine.merge(tasks, file_io)


def interrupt() -> None:
    raise KeyboardInterrupt


def data_paths(table: LakeTable) -> list[str]:
    return [file.path for file in table.files() if file.is_data]


def files_on_disk(house: House) -> set[str]:
    return {f"file://{path}" for path in Path(house.lake.folder, "wh").rglob("*.parquet")}


def test_small_files_become_one_and_rows_stay(house: House) -> None:
    table = house.fragmented(files=12)
    table.delete_ids(3, 4)
    done = house.services.compact_tables.compact(table.identifier)
    assert table.live_ids() == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    assert len(table.files()) == 1
    record = done.records[0]
    assert record.status is RecordStatus.COMMITTED
    assert (record.figures.files_before, record.figures.files_after) == (12, 1)
    assert (record.figures.delete_files_before, record.figures.delete_files_after) == (1, 0)
    assert (record.rows, record.rows_deleted) == (10, 2)
    assert table.head().ancestors[0].summary[RECORD_ID_PROPERTY] == record.record_id
    assert house.services.stores.tasks.task(done.tasks[0].task_id).status is TaskStatus.COMMITTED


def test_the_next_command_finishes_the_work_of_a_killed_process(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    (task,) = services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks
    assert services.stores.tasks.poll(None, "gone", house.now, timedelta(minutes=1)) is not None
    waits = services.compact_tables.compact(table.identifier)
    assert waits.records == ()
    ends = f"(its lease ends at {house.now + timedelta(minutes=1):%H:%M:%S} UTC unless renewed)"
    by = f"1 node is held by task {task.task_id}"
    assert waits.reason == waits.held == f"gone is merging 1 task of {table.identifier} {ends}; {by}; run again after that"
    house.pass_time(3600)
    done = services.compact_tables.compact(table.identifier)
    assert [record.committed_task_ids for record in done.records] == [(task.task_id,)]
    assert len(table.files()) == 1
    assert table.live_ids() == list(range(12))


def test_compact_merges_a_pending_task_that_a_tick_planned(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    (task,) = services.one_table.plan_nodes(table.identifier, PlanRequest()).tasks
    assert services.compact_tables.compact(table.identifier).committed == (task.task_id,)


@pytest.mark.parametrize("what", ["plan", "refresh", "commit"])
@pytest.mark.parametrize("request_", [PlanRequest(), FULL], ids=["by triggers", "forced"])
def test_a_lease_that_another_process_holds_for_a_moment_is_waited_for(house: House, what: str, request_: PlanRequest) -> None:
    table = house.fragmented(files=12)
    services = house.services
    name = f"{what}:{table.identifier}"
    assert services.stores.leases.acquire(name, "sensor#1", house.now, timedelta(minutes=1))
    waited = house.before_sleep(lambda: services.stores.leases.release(name, "sensor#1"))
    assert len(services.compact_tables.compact(table.identifier, request_).committed) == 1
    assert waited == [True]
    assert table.live_ids() == list(range(12))


@pytest.mark.parametrize(("what", "doing"), [("plan", "planning this table"), ("refresh", "reading lake.db.t")])
def test_a_lease_that_is_never_given_back_is_an_error_that_names_its_holder(house: House, what: str, doing: str) -> None:
    table = house.fragmented(files=12)
    services = house.services
    name = f"{what}:{table.identifier}"
    services.stores.leases.acquire(name, "process 7 on elsewhere#1", house.now, timedelta(minutes=1))
    house.before_sleep(lambda: services.stores.leases.renew(name, "process 7 on elsewhere#1", house.now, timedelta(minutes=1)))
    with pytest.raises(StorageUnavailable, match=rf"process 7 on elsewhere is {doing} \(its lease ends at .* UTC unless renewed\)"):
        services.compact_tables.compact(table.identifier)


def test_a_table_that_a_tick_is_reading_is_planned_after_that(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    held = InHand(services.plan_tables)
    services.plan_tables = held

    def read_meanwhile(*arguments: Any, **named: Any) -> object:
        index = services.stores.tables.state(table.identifier).index
        assert index.loaded is not None
        indexed(services.stores, index.turned(Reading(index.loaded)))
        return held.real.plan(*arguments, **named)

    held.instead_once(plan=read_meanwhile)
    assert len(services.compact_tables.compact(table.identifier).committed) == 1


def test_a_person_s_commit_waits_for_another_one(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.one_table.plan_nodes(table.identifier, PlanRequest())
    services.work_on_queue.drain("x")
    name = f"commit:{table.identifier}"
    services.stores.leases.acquire(name, "sensor#1", house.now, timedelta(minutes=1))
    house.before_sleep(lambda: services.stores.leases.release(name, "sensor#1"))
    assert services.one_table.commit_now(table.identifier).record is not None
    services.stores.leases.acquire(name, "sensor#2", house.now, timedelta(hours=1))
    with pytest.raises(StorageUnavailable, match=r"sensor is committing lake\.db\.t"):
        services.one_table.commit_now(table.identifier)


def test_an_interrupt_gives_everything_back_and_the_next_compacts_at_once(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.engine_override = Between(interrupt)
    with pytest.raises(KeyboardInterrupt):
        services.compact_tables.compact(table.identifier)
    [task] = services.stores.tasks.tasks(table.identifier)
    assert (task.status, task.reason, task.owner) == (TaskStatus.CANCELED, "interrupted", None)
    [attempt] = services.stores.tasks.attempts(task.task_id)
    assert (attempt.end_reason, attempt.reason) == (EndReason.INTERRUPTED, "interrupted")
    assert len(services.compact_tables.compact(table.identifier).committed) == 1
    assert table.live_ids() == list(range(12))
    assert len(table.files()) == 1


def test_an_interrupt_after_a_report_landed_keeps_what_was_merged(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services

    def landed(*arguments: Any) -> TaskStatus:
        services.stores.tasks.complete(*arguments)
        raise KeyboardInterrupt

    services.stores.tasks.instead_once(complete=landed)
    with pytest.raises(KeyboardInterrupt):
        services.compact_tables.compact(table.identifier)
    [task] = services.stores.tasks.tasks(table.identifier)
    assert task.status is TaskStatus.PREPARED
    assert services.compact_tables.compact(table.identifier).committed == (task.task_id,)
    assert table.live_ids() == list(range(12))


@pytest.mark.parametrize("error", [ConfigError("no Java"), StorageUnavailable("no answer")])
def test_an_engine_that_does_not_start_costs_no_attempt(house: House, error: Exception) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.engine_override = Away(error)
    with pytest.raises(type(error)):
        services.compact_tables.compact(table.identifier)
    [task] = services.stores.tasks.tasks(table.identifier)
    assert (task.status, task.attempt, task.reason) == (TaskStatus.CANCELED, 0, str(error))
    house.pass_time(61)
    assert services.plan_tables.plan(table.identifier).tasks
    with pytest.raises(type(error)):
        services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    assert [task.attempt for task in services.stores.tasks.tasks(table.identifier, (TaskStatus.PENDING,))] == [0]


def test_an_engine_with_nothing_to_merge_is_not_started(house: House) -> None:
    house.services.engine_override = Away(AssertionError("was started"))
    assert house.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0))).drained.polled == 0


def test_after_the_loss_of_the_engine_merged_tasks_are_still_committed(house: House) -> None:
    table = house.fragmented(files=24, **{"self-optimizing.max-task-size-bytes": "1", "self-optimizing.target-size": "12000"})
    services = house.services
    services.engine_override = Away(StorageUnavailable("Spark is gone"), times=1)
    services.work_on_queue._task_slots = None
    done = services.compact_tables.compact(table.identifier)
    assert len(done.tasks) > 1
    assert len(done.committed) == 1
    assert set(done.failed.values()) == {"Spark is gone"}
    assert len(done.failed) == len(done.tasks) - 1
    assert table.live_ids() == list(range(24))


def test_a_commit_by_another_process_in_between_is_no_failure(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services

    def commit_first(step: str) -> None:
        if step == "prepared":
            services.commit_tables.commit(table.identifier)

    services.work_on_queue._on_step = commit_first
    done = services.compact_tables.compact(table.identifier)
    assert done.committed == tuple(task.task_id for task in done.tasks) != ()
    assert (len(done.records), done.waiting) == (1, None)


def test_a_record_says_how_long_the_longest_wait_was(house: House) -> None:
    table = house.fragmented(files=24, **{"self-optimizing.max-task-size-bytes": "1", "self-optimizing.target-size": "12000"})
    services = house.services
    services.work_on_queue._task_slots = None
    services.work_on_queue._on_step = lambda step: house.pass_time(10) if step == "prepared" else None
    done = services.compact_tables.compact(table.identifier)
    assert done.records[0].queue_ms == 10_000 * (len(done.tasks) - 1) > 0


def test_a_compacted_table_is_not_due_any_more(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.work_on_queue._on_step = lambda step: house.pass_time(1)
    done = services.compact_tables.compact(table.identifier)
    before = services.read_tables.table(table.identifier)
    assert [node.health for node in before.nodes] == [HealthStatus.WAITING]
    assert before.overview.reason == "the table changed since its files were read; the next tick reads them again"
    services.one_table.look_again(done.table)
    after = services.read_tables.table(table.identifier)
    assert [node.health for node in after.nodes] == [HealthStatus.HEALTHY]
    assert after.overview.reason == "no node has 12 small files; the highest number is 1, in unpartitioned"


def test_a_table_that_is_not_fragmented_says_why(house: House) -> None:
    table = house.fragmented(files=3)
    done = house.services.compact_tables.compact(table.identifier)
    assert done.records == ()
    assert done.reason == "no node has 12 small files; the highest number is 3, in unpartitioned"


def test_a_full_without_another_gain_drops_dangling_deletes(house: House) -> None:
    table = house.lake.table("t")
    table.delete_ids(7)
    table.ids(7, 8)
    house.services.explore_catalogs.explore()
    done = house.services.compact_tables.compact(table.identifier, FULL)
    assert [task.work.action for task in done.tasks] == [TaskAction.DROP_DELETES]
    assert done.records[0].status is RecordStatus.COMMITTED, done.reason
    assert [file.is_data for file in table.files()] == [True]
    assert table.live_ids() == [7, 8]


def test_rows_deleted_between_merge_and_commit_stay_deleted(house: House) -> None:
    table = house.fragmented(files=12)
    house.services.engine_override = Between(lambda: table.delete_ids(5))
    house.services.compact_tables.compact(table.identifier)
    assert table.live_ids() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_conflict_is_planned_again_and_its_files_are_removed(house: House) -> None:
    table = house.fragmented(files=12)
    first = data_paths(table)[0]
    house.services.engine_override = Between(lambda: table.delete_positions((first, 0)))
    heard = Heard()
    done = house.services.compact_tables.compact(table.identifier, listener=heard)
    assert len(done.records) == 2
    each_round = [
        [("planned", [task.task_id]), ("ended", (task.task_id, TaskStatus.PREPARED)), ("committed", record)]
        for task, record in zip(done.tasks, done.records, strict=True)
    ]
    assert heard.events == [*each_round[0], *each_round[1]]
    assert len(done.records[0].conflicts) == 1
    assert done.records[1].status is RecordStatus.COMMITTED
    assert len(table.live_ids()) == 11
    assert house.services.stores.tasks.task(done.tasks[0].task_id).status is TaskStatus.FAILED
    listed = {file.path for file in table.files()}
    merged = {path for path in files_on_disk(house) if done.tasks[0].task_id in path}
    assert not merged - listed


def test_conflicts_end_after_three_more_tries(house: House) -> None:
    table = house.fragmented(files=12)

    paths = iter(data_paths(table))

    def delete_one() -> None:
        table.delete_positions((next(paths), 0))

    house.services.engine_override = Between(*[delete_one] * 9)
    done = house.services.compact_tables.compact(table.identifier)
    assert len(done.records) == 4
    assert done.committed == ()
    assert len(table.live_ids()) == 8


def test_a_task_is_retried_then_given_up_and_left_alone_until_a_person_asks(house: House) -> None:
    table = house.fragmented(files=12)
    house.services.engine_override = Broken()
    done = house.services.compact_tables.compact(table.identifier)
    task = house.services.stores.tasks.task(done.tasks[0].task_id)
    assert (task.status, task.attempt) == (TaskStatus.FAILED, 4)
    assert "footer unreadable" in done.reason
    assert len(table.live_ids()) == 12
    house.pass_time(120)
    planned = house.services.plan_tables.plan(table.identifier)
    assert planned.tasks == ()
    assert planned.plan.reason.code is PlanReasonCode.FAILING
    assert house.services.plan_tables.plan(table.identifier, FULL).tasks
    house.services.stores.tasks.cancel(
        [t.task_id for t in house.services.stores.tasks.tasks(table.identifier)], EndReason.GIVEN_UP, "test", house.now
    )
    house.pass_time(3600)
    assert house.services.plan_tables.plan(table.identifier).tasks


def test_paused_observed_and_disabled_tables_are_left_alone(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.refresh_files.refresh(table.identifier)
    services.stores.switches.pause(table.identifier, True)
    assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.PAUSED
    assert services.plan_tables.explain(table.identifier).tasks
    services.stores.switches.pause(table.identifier, False)
    entry = services.stores.catalogs.entry("lake")
    services.stores.catalogs.remove("lake")
    services.stores.catalogs.add(replace(entry, observe=True))
    services.explore_catalogs.explore()
    services.refresh_files.refresh(table.identifier)
    assert services.plan_tables.plan(table.identifier).plan.reason.code is PlanReasonCode.OBSERVED
    disabled = house.fragmented("disabled", **{"self-optimizing.enabled": "false"})
    services.refresh_files.refresh(disabled.identifier)
    assert services.plan_tables.explain(disabled.identifier).reason.code is PlanReasonCode.DISABLED


def test_queued_tasks_are_drained_and_committed_when_due(house: House) -> None:
    first = house.fragmented("first", **{"self-optimizing.commit.interval": "60000"})
    services = house.services
    services.sweep_tables.sweep(None, timedelta(seconds=20))
    services.sweep_tables.plan_due([first.identifier], timedelta(seconds=20))
    heard = Heard()
    done = services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0), listener=heard)).drained
    assert len(done.prepared) == 1
    assert [event for event, _ in heard.events] == ["ended", "committed"]
    for one in range(20, 40):
        first.ids(one)
    house.pass_time(0)
    services.sweep_tables.sweep(None, timedelta(seconds=20))
    services.plan_tables.plan(first.identifier, FULL)
    services.work_on_queue.drain("somebody")
    assert services.commit_due.due() == []
    house.pass_time(61)
    assert services.commit_due.due() == [first.identifier]
    assert len(list(services.commit_due.commit())) == 1
    assert len(first.live_ids()) == 32


def prepared(house: House, table: LakeTable) -> list[str]:
    house.services.one_table.refresh(table.identifier)
    tasks = house.services.plan_tables.plan(table.identifier, FULL).tasks
    house.services.work_on_queue.drain("somebody")
    return [task.task_id for task in tasks]


def test_a_lost_answer_that_landed_is_found_and_never_committed_twice(house: House) -> None:
    table = house.fragmented(files=12)
    ids = prepared(house, table)
    commit = house.services.committer.commit

    def lost(*arguments: object) -> CommitOutcome:
        commit(*arguments)  # type: ignore[arg-type]
        return CommitOutcome(CommitState.UNKNOWN, reason="the answer got lost")

    with house.services.committer.for_a_while(commit=lost):
        record = house.services.commit_tables.commit(table.identifier).record
    assert record is not None
    assert record.status is RecordStatus.UNKNOWN
    house.pass_time(10)
    settled = house.services.keep_watch.keep().settled
    assert [one.status for one in settled] == [RecordStatus.COMMITTED]
    assert [house.services.stores.tasks.task(one).status for one in ids] == [TaskStatus.COMMITTED]
    assert settled[0].figures.files_after == 1
    assert len(table.live_ids()) == 12
    assert len([s for s in table.head().ancestors if RECORD_ID_PROPERTY in s.summary]) == 1


def test_a_lost_answer_that_never_arrived_is_committed_by_the_same_record(house: House) -> None:
    table = house.fragmented(files=12)
    prepared(house, table)
    with house.services.committer.for_a_while(commit=lambda *_: CommitOutcome(CommitState.UNKNOWN, reason="lost")):
        house.services.commit_tables.commit(table.identifier)
    house.pass_time(10)
    house.services.keep_watch.keep()
    list(house.services.commit_due.commit())
    assert len(table.files()) == 1
    assert len(table.live_ids()) == 12
    assert not house.services.stores.records.records(unsettled=True)


@pytest.mark.parametrize("step", ["claimed-for-commit", "record-opened", "committed-in-table", "tasks-committed", "record-closed"])
def test_the_next_tick_finishes_a_commit_that_died_at_any_step(house: House, step: str) -> None:
    table = house.fragmented(files=12)
    ids = prepared(house, table)

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == step:
            raise Killed

    house.services.on_step = die
    with pytest.raises(Killed):
        house.services.commit_tables.commit(table.identifier)
    house.services.on_step = lambda name: None
    house.pass_time(61)
    house.services.keep_watch.keep()
    list(house.services.commit_due.commit())
    assert [house.services.stores.tasks.task(one).status for one in ids] == [TaskStatus.COMMITTED]
    assert not house.services.stores.records.records(unsettled=True)
    assert len(table.live_ids()) == 12
    assert len(table.files()) == 1
    assert len([s for s in table.head().ancestors if RECORD_ID_PROPERTY in s.summary]) == 1


def test_a_commit_that_landed_in_a_table_renamed_away_keeps_its_files(house: House) -> None:
    table = house.fragmented(files=12)
    other = house.lake.table("other")
    other.ids(100)
    prepared(house, table)
    catalog, ours = house.lake.catalog, house.services.catalogs.catalog("lake")
    swap = ours.commit_table

    def swapped_and_renamed(*arguments: Any) -> Any:
        ours.commit_table = swap
        swap(*arguments)
        catalog.rename_table(("db", "t"), ("db", "old"))
        catalog.rename_table(("db", "other"), ("db", "t"))
        raise CommitStateUnknownException("gateway timeout")

    ours.commit_table = swapped_and_renamed
    record = house.services.commit_tables.commit(table.identifier).record
    assert record is not None
    assert "dropped and created again" in next(iter(record.conflicts.values()))
    house.services.keep_watch.keep()
    list(house.services.commit_due.commit())
    renamed = LakeTable(house.lake, TableIdentifier("lake", ("db",), "old"), catalog.load_table(("db", "old")))
    assert len(renamed.files()) == 1, "the commit had landed"
    assert renamed.live_ids() == list(range(12))
    assert other.lake.catalog.load_table(("db", "t")).scan().to_arrow()["id"].to_pylist() == [100]


def test_files_stay_while_an_earlier_attempt_may_land_though_the_table_is_refused_now(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = house.fragmented(files=12)
    prepared(house, table)
    late: list[tuple[Any, ...]] = []

    def on_its_way(*arguments: Any) -> Any:
        late.append(arguments)
        raise CommitStateUnknownException("gateway timeout")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", on_its_way)
        house.services.commit_tables.commit(table.identifier)
    with table.table.refresh().transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    house.pass_time(10)
    assert house.services.keep_watch.keep().settled == ()
    [record] = house.services.stores.records.records(unsettled=True)
    assert record.status is RecordStatus.UNKNOWN
    catalog, _, requirements, updates = late[0]
    catalog.commit_table(table.table.refresh(), requirements, updates)
    assert table.live_ids() == list(range(12))
    house.pass_time(20)
    assert [one.status for one in house.services.keep_watch.keep().settled] == [RecordStatus.COMMITTED]


def test_tasks_stay_prepared_while_storage_does_not_answer(house: House) -> None:
    table = house.fragmented(files=12)
    ids = prepared(house, table)

    def away(*arguments: object) -> CommitOutcome:
        raise StorageUnavailable("the catalog does not answer")

    house.services.committer.instead_once(commit=away)
    record = house.services.commit_tables.commit(table.identifier).record
    assert record is not None
    assert record.status is RecordStatus.FAILED
    assert record.reason == "the catalog does not answer"
    assert house.services.commit_tables.commit(table.identifier, ids).record is not None
    assert len(table.files()) == 1


def test_a_table_dropped_before_its_commit_fails_its_tasks_with_a_sentence(house: House) -> None:
    table = house.fragmented(files=12)
    prepared(house, table)
    house.lake.catalog.drop_table(("db", "t"))
    record = house.services.commit_tables.commit(table.identifier).record
    assert record is not None
    assert record.status is RecordStatus.FAILED
    assert all("lake.db.t" in reason for reason in record.conflicts.values())


def test_a_report_of_a_lost_attempt_changes_nothing_and_its_files_go(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services

    def lose() -> None:
        house.pass_time(61)
        services.stores.tasks.release_expired(house.now)

    services.engine_override = Between(lose)
    services.one_table.refresh(table.identifier)
    task_id = services.plan_tables.plan(table.identifier).tasks[0].task_id
    done = services.work_on_queue.drain("slow", Drain(ends=Ends(iter([False, True]).__next__)))
    assert done.prepared == []
    assert services.stores.tasks.task(task_id).status is TaskStatus.PENDING
    assert not [path for path in files_on_disk(house) if task_id in path]
    services.compact_tables.compact(table.identifier)
    services.work_on_queue.drain("next")
    list(services.commit_due.commit())
    assert len(table.live_ids()) == 12


def test_a_report_whose_answer_got_lost_keeps_its_files(house: House) -> None:
    table = house.fragmented(files=12)
    services = house.services
    services.one_table.refresh(table.identifier)
    task_id = services.plan_tables.plan(table.identifier).tasks[0].task_id

    def landed_and_lost(*arguments: object) -> TaskStatus:
        services.stores.tasks.real.complete(*arguments)
        raise StorageUnavailable("the state database did not answer")

    services.stores.tasks.instead(complete=landed_and_lost)
    services.work_on_queue.drain("somebody", Drain(ends=Ends(iter([False, True]).__next__)))
    services.stores.tasks.pass_on("complete")
    assert services.stores.tasks.task(task_id).status is TaskStatus.PREPARED
    list(services.commit_due.commit())
    assert len(table.files()) == 1
    assert len(table.live_ids()) == 12
