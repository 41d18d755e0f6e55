"""A worker's `TaskQueue`: the service over each kind of store, called directly, and with all values sent through JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.errors import AccessDenied, CompactionError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.ports import TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.queue.serve_tasks import FILE_IO_AGE, ServeTasks
from compaction_pipeline.storage.stores import Stores
from compaction_pipeline_tests.behaviours.example_tasks import example, failed, prepared
from compaction_pipeline_tests.builders import COMPLETE, LAYOUT, NOW, TABLE, indexed
from compaction_pipeline_tests.through_json import QueueThroughJson

OTHER = TableIdentifier("lake", ("shop",), "other")


@dataclass
class Catalog:
    """A fake committer. It gives the properties that open files and deletes all files that it gets. `error` makes it fail."""

    error: Exception | None = None
    before: Callable[[], object] = lambda: None
    asked: list[TableIdentifier] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        self.asked.append(table)
        self.before()
        if self.error is not None:
            raise self.error
        return {"s3.secret-access-key": f"secret {len(self.asked)}", "table": str(table)}

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        self.deleted += paths
        return paths


@dataclass
class Served:
    """A queue over stores with the tables TABLE and OTHER, a fake catalog, and a clock that only the test moves."""

    stores: Stores
    catalog: Catalog = field(default_factory=Catalog)
    now: datetime = NOW
    denied: list[tuple[TableIdentifier, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for table in (TABLE, OTHER):
            indexed(self.stores, TableIndex(table, COMPLETE))
        self.service = ServeTasks(
            self.stores.tables,
            self.stores.tasks,
            self.catalog,  # type: ignore[arg-type]
            lambda table, reason: self.denied.append((table, reason)),
            lambda: self.now,
        )
        self.queue: TaskQueue = self.service

    def wait(self, *tasks: CompactionTask) -> None:
        assert self.stores.tasks.insert(tasks, [], self.now)

    def taken(self, owner: str = "worker") -> Assignment:
        assignment = self.queue.poll(owner, None)
        assert isinstance(assignment, Assignment)
        return assignment

    def status(self, task_id: str) -> TaskStatus:
        return self.stores.tasks.task(task_id).status


@pytest.fixture(params=["direct", "through JSON"])
def served(request: pytest.FixtureRequest, stores: Stores) -> Served:
    served = Served(stores)
    if request.param == "through JSON":
        served.queue = QueueThroughJson(served.service)
    return served


def test_a_poll_hands_out_all_that_a_merge_needs(served: Served) -> None:
    served.wait(example("t1", group="g"), example("t2", priority=1))
    assignment = served.taken("me")
    assert assignment.task == served.stores.tasks.task("t2")
    task = assignment.task
    assert (task.status, task.owner, task.attempt, task.lease_expires_at) == (TaskStatus.EXECUTING, "me", 1, NOW + LEASE)
    assert assignment.attempt_id == task.attempt_id
    assert assignment.layout == LAYOUT
    assert assignment.file_io == {"s3.secret-access-key": "secret 1", "table": str(TABLE)}
    assert served.taken("you").task.task_id == "t1"
    assert served.queue.poll("me", None) is None


def test_the_properties_that_open_files_are_in_no_text(served: Served) -> None:
    served.wait(example("t1"))
    assert "secret" not in repr(served.taken())


def test_poll_and_waits_keep_to_the_given_queue_and_tasks(served: Served) -> None:
    assert not served.queue.waits(None)
    served.wait(example("a", queue="heavy"), example("b"))
    assert served.queue.waits("heavy")
    assert not served.queue.waits("heavy", ["b"])
    assert served.queue.poll("me", "heavy", ["b"]) is None
    assert served.queue.poll("me", "light") is None
    heavy = served.queue.poll("me", "heavy")
    assert isinstance(heavy, Assignment)
    assert heavy.task.task_id == "a"
    assert served.queue.waits(None, ["a", "b"])
    assert not served.queue.waits(None, ["a"])


def test_a_paused_table_s_waiting_tasks_are_still_merged(served: Served) -> None:
    served.wait(example("t1"))
    served.stores.switches.pause(TABLE, True)
    assert served.taken().task.task_id == "t1"


def test_several_workers_share_the_tasks_and_none_is_handed_out_twice(served: Served) -> None:
    names = [f"t{number:02}" for number in range(24)]
    served.wait(*(example(name) for name in names))

    def work(owner: str) -> list[str]:
        taken = []
        while (assignment := served.queue.poll(owner, None)) is not None or served.queue.waits(None):
            if isinstance(assignment, Assignment):
                assert assignment.task.owner == owner
                taken.append(assignment.task.task_id)
        return taken

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(work, ["a", "b", "c", "d"]))
    assert sorted(name for share in shares for name in share) == names


def test_file_properties_are_requested_before_the_claim_and_again_after_a_while(served: Served) -> None:
    served.wait(*(example(name) for name in ("t1", "t2", "t3", "t4")), example("u", table=OTHER, created_at=NOW + timedelta(hours=1)))
    served.catalog.before = lambda: counted.append(served.stores.tasks.counts().get(TaskStatus.EXECUTING, 0))
    counted: list[int] = []
    assert [served.taken().file_io["s3.secret-access-key"] for _ in range(2)] == ["secret 1", "secret 1"]
    served.now += FILE_IO_AGE
    assert [served.taken().file_io["s3.secret-access-key"] for _ in range(2)] == ["secret 2", "secret 2"]
    assert served.taken().file_io["table"] == str(OTHER)
    assert served.catalog.asked == [TABLE, TABLE, OTHER]
    assert counted == [0, 2, 4], "no lease runs while a catalog is asked for the first task of a table"


def test_a_task_that_overtakes_while_the_catalog_is_asked_gets_its_own_tables_properties(served: Served) -> None:
    served.wait(example("t1"))
    urgent = [example("u1", table=OTHER, priority=9)]
    served.catalog.before = lambda: served.wait(urgent.pop()) if urgent else None
    assignment = served.taken()
    assert assignment.task.task_id == "u1"
    assert assignment.file_io["table"] == str(OTHER)


@pytest.mark.parametrize(("error", "reason"), [(StorageUnavailable("catalog away"), "catalog away"), (KeyError("x"), "KeyError: 'x'")])
def test_an_attempt_whose_table_cannot_be_opened_fails_and_the_next_asks_again(served: Served, error: Exception, reason: str) -> None:
    served.wait(example("t1", max_attempts=2))
    served.catalog.error = error
    ended = served.queue.poll("me", None)
    assert isinstance(ended, EndedAttempt)
    assert (ended.task.task_id, ended.task.attempt, ended.status) == ("t1", 1, TaskStatus.PENDING)
    assert ended.result == MergeResult("t1", ended.task.attempt_id or "", end_reason=EndReason.FAILED, error=reason)
    assert served.catalog.asked == [TABLE]
    assert served.stores.tasks.task("t1").reason == reason
    served.catalog.error = None
    assert served.taken().task.attempt == 2


def test_a_table_that_cannot_be_opened_uses_up_the_retries(served: Served) -> None:
    served.wait(example("t1", max_attempts=1))
    served.catalog.error = AccessDenied("no key")
    ended = served.queue.poll("me", None)
    assert isinstance(ended, EndedAttempt)
    assert (ended.status, served.status("t1")) == (TaskStatus.FAILED, TaskStatus.FAILED)


def test_a_task_of_a_recreated_table_is_not_merged(served: Served) -> None:
    served.wait(example("t1"))
    indexed(served.stores, TableIndex(TABLE))
    ended = served.queue.poll("me", None)
    assert isinstance(ended, EndedAttempt)
    assert ended.result.error == f"table {TABLE} was recreated since the task was planned"


def test_a_table_that_is_dropped_while_it_is_opened_keeps_no_other_task_waiting(served: Served) -> None:
    served.wait(example("t1", priority=1), example("u1", table=OTHER))
    served.catalog.before = lambda: served.stores.index.forget(TABLE)
    assert served.taken().task.task_id == "u1"


def test_a_renewed_attempt_is_not_taken_away_and_a_silent_one_is(served: Served) -> None:
    served.wait(example("t1"), example("t2"))
    kept, silent = served.taken(), served.taken()
    served.now += timedelta(seconds=30)
    assert served.queue.renew([kept.attempt_id]) == (kept.attempt_id,)
    served.now = NOW + LEASE
    assert served.service.release_expired() == (silent.task.task_id,)
    assert served.queue.renew([silent.attempt_id, kept.attempt_id]) == (kept.attempt_id,)
    assert served.status(silent.task.task_id) is TaskStatus.PENDING


def test_a_merged_task_is_prepared_and_the_same_report_is_answered_alike(served: Served) -> None:
    served.wait(example("t1"))
    result = prepared(served.taken().task)
    assert [served.queue.complete(result) for _ in range(2)] == [TaskStatus.PREPARED] * 2
    assert served.stores.tasks.task("t1").result == result
    assert served.catalog.deleted == []


def test_a_failed_task_waits_again_until_its_retries_are_used_up(served: Served) -> None:
    served.wait(example("t1", max_attempts=2))
    assert served.queue.complete(failed(served.taken().task)) is TaskStatus.PENDING
    assert served.queue.complete(failed(served.taken().task)) is TaskStatus.FAILED
    assert served.queue.poll("me", None) is None


@pytest.mark.parametrize("reason", [EndReason.FILE_GONE, EndReason.REFUSED])
def test_a_task_that_no_attempt_can_merge_is_given_up_at_once(served: Served, reason: EndReason) -> None:
    served.wait(example("t1", max_attempts=9))
    assert served.queue.complete(replace(failed(served.taken().task), end_reason=reason)) is TaskStatus.FAILED


def test_a_task_whose_store_refuses_access_is_put_aside_and_its_table_says_why(served: Served) -> None:
    served.wait(example("t1"), example("t2", max_attempts=1))
    for task_id, status in (("t1", TaskStatus.CANCELED), ("t2", TaskStatus.FAILED)):
        denied = replace(failed(served.taken().task, "no right to read"), end_reason=EndReason.NO_ACCESS)
        assert denied.task_id == task_id
        assert served.queue.complete(denied) is status
        assert served.status(task_id) is status
    assert served.denied == [(TABLE, "no right to read")]


def test_a_stale_report_changes_nothing_and_its_files_are_deleted(served: Served) -> None:
    served.wait(example("t1"))
    lost = served.taken("lost")
    served.now += LEASE
    served.service.release_expired()
    held = served.taken("next")
    result = prepared(lost.task)
    for report in (result, failed(lost.task)):
        with pytest.raises(StaleAttempt, match="no longer holds task"):
            served.queue.complete(report)
    assert served.catalog.deleted == [output.path for output in result.outputs]
    assert served.stores.tasks.task("t1") == held.task


@pytest.mark.parametrize("gone", [True, False], ids=["a table that is gone", "a catalog that is away"])
def test_a_stale_report_stays_stale_when_its_files_cannot_be_deleted(served: Served, gone: bool) -> None:
    served.wait(example("t1"))
    lost = served.taken("lost")
    if gone:
        served.stores.index.forget(TABLE)
    else:
        served.now += LEASE
        served.service.release_expired()
        served.catalog.error = StorageUnavailable("catalog away")
    with pytest.raises(StaleAttempt):
        served.queue.complete(prepared(lost.task))
    assert served.catalog.deleted == []


def test_a_worker_that_leaves_gives_its_own_attempts_back_and_takes_no_more(served: Served) -> None:
    served.wait(*(example(name, priority=-number) for number, name in enumerate(("t1", "t2", "t3"))))
    mine, done, other = served.taken("me"), served.taken("me"), served.taken("you")
    served.queue.complete(prepared(done.task))
    served.queue.give_back("me", EndReason.INTERRUPTED, "interrupted")
    assert [served.status(name) for name in ("t1", "t2", "t3")] == [TaskStatus.PENDING, TaskStatus.PREPARED, TaskStatus.EXECUTING]
    (attempt,) = served.stores.tasks.attempts(mine.task.task_id)
    assert (attempt.end_reason, attempt.reason) == (EndReason.INTERRUPTED, "interrupted")
    assert served.queue.poll("me", None) is None
    with pytest.raises(StaleAttempt):
        served.queue.complete(prepared(mine.task))
    assert served.taken("you").task.task_id == "t1"
    assert served.queue.renew([other.attempt_id])


def test_a_poll_that_runs_while_its_worker_leaves_claims_nothing(served: Served) -> None:
    served.wait(example("t1"))
    served.catalog.before = lambda: served.queue.give_back("me", EndReason.INTERRUPTED, "interrupted")
    assert served.queue.poll("me", None) is None
    assert served.status("t1") is TaskStatus.PENDING


def test_an_unreachable_state_database_is_reported_as_such(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.wait(example("t1"))
    held = served.taken()

    def away(*arguments: object, **named: object) -> None:
        raise StorageUnavailable("the state database did not answer")

    for verb in ("complete", "tasks", "first_waiting", "renew"):
        monkeypatch.setattr(type(served.stores.tasks), verb, away)
    for call in (
        lambda: served.queue.poll("me", None),
        lambda: served.queue.waits(None),
        lambda: served.queue.renew([held.attempt_id]),
        lambda: served.queue.complete(prepared(held.task)),
    ):
        with pytest.raises(CompactionError, match="did not answer"):
            call()
    # The worker ends all the same, because its leases end by themselves.
    served.queue.give_back("worker", EndReason.INTERRUPTED, "interrupted")
    assert served.catalog.deleted == []
