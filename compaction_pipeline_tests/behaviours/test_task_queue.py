"""A worker's `TaskQueue`: the service over each kind of store, called directly, and with all values sent through JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from compaction_pipeline.core.errors import AccessDenied, CompactionError, MergeRefused, NotFoundError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.credentials import MOST_EXPIRIES
from compaction_pipeline.core.queue.ports.work import TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.index import TableIndex
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.report import report_problem
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.queue.judge_reports import JudgeReports
from compaction_pipeline.services.queue.lost_attempts import LostAttempts
from compaction_pipeline.services.queue.serve_tasks import FILE_IO_AGE, HandsOut, ServeTasks
from compaction_pipeline_tests.behaviours.example_tasks import example, failed, make_groups, prepared
from compaction_pipeline_tests.builders import COMPLETE, LAYOUT, NOW, TABLE, indexed
from compaction_pipeline_tests.services.in_hand import stores_in_hand
from compaction_pipeline_tests.through_json import QueueThroughJson

OTHER = TableIdentifier("lake", ("shop",), "other")


@dataclass
class Catalog:
    """A fake committer. It gives the properties that open files and deletes all files that it gets. `error` makes it fail.

    With a `life`, its credentials end so long after `now`.
    """

    error: Exception | None = None
    life: timedelta | None = None
    now: Callable[[], datetime] = lambda: NOW
    before: Callable[[], object] = lambda: None
    asked: list[TableIdentifier] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        self.asked.append(table)
        self.before()
        if self.error is not None:
            raise self.error
        secrets = {"s3.secret-access-key": f"secret {len(self.asked)}", "table": str(table)}
        if self.life is None:
            return secrets
        return {**secrets, "s3.session-token-expires-at-ms": str(round((self.now() + self.life).timestamp() * 1000))}

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        self.deleted += paths
        return paths


def away(*arguments: object, **named: object) -> None:
    """A verb of a store whose database does not answer."""
    raise StorageUnavailable("the state database did not answer")


def by_its_rules_alone(task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> MergeResult:
    """Judge a report whose files nobody has written."""
    problem = report_problem(task, result)
    if problem is not None:
        raise MergeRefused(problem)
    return result


@dataclass
class Served:
    """A queue over stores with the tables TABLE and OTHER, a fake catalog, and a clock that only the test moves.

    `denied` are the denials that the tables show. No table shows one while `may_note` is False.
    """

    stores: Stores
    catalog: Catalog = field(default_factory=Catalog)
    now: datetime = NOW
    denied: list[tuple[TableIdentifier, str]] = field(default_factory=list)
    may_note: bool = True
    retry_after: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        for table in (TABLE, OTHER):
            indexed(self.stores, TableIndex(table, COMPLETE))
        self.service = ServeTasks(
            self.stores.tables,
            self.stores.tasks,
            self.catalog,  # type: ignore[arg-type]
            self.note_denied,
            JudgeReports(self.stores.groups, by_its_rules_alone, lambda *of: None),
            lambda: self.now,
            HandsOut(self.retry_after),
        )
        self.queue: TaskQueue = self.service
        self.catalog.now = lambda: self.now

    def note_denied(self, table: TableIdentifier, reason: str) -> bool:
        if self.may_note:
            self.denied.append((table, reason))
        return self.may_note

    def release_lost(self) -> Sequence[TaskId]:
        return LostAttempts(self.stores.tasks, self.stores.optimizers, self.stores.watchers).release(self.now)

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
    served = Served(stores_in_hand(stores))
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


def test_a_poll_of_many_opens_each_table_before_it_claims(served: Served) -> None:
    served.wait(*(example(f"t{number}", table=OTHER if number == 1 else TABLE, priority=-number) for number in range(4)))
    unclaimed = []
    served.catalog.before = lambda: unclaimed.append(served.stores.tasks.counts()[TaskStatus.PENDING])
    polled = served.service.poll_many("me", "default", 3)
    assert [(each.task.task_id, each.task.owner) for each in polled] == [("t0", "me"), ("t1", "me"), ("t2", "me")]
    assert all(isinstance(each, Assignment) and each.file_io["table"] == str(each.task.table) for each in polled)
    assert unclaimed == [4, 4]
    assert [each.task.task_id for each in served.service.poll_many("me", "default", 3)] == ["t3"]
    assert served.service.poll_many("me", "default", 3) == ()


def test_a_worker_that_left_is_given_no_tasks(served: Served) -> None:
    served.wait(example("t1"))
    served.queue.give_back("me", EndReason.INTERRUPTED, "interrupted")
    assert served.service.poll_many("me", "default", 3) == ()
    assert served.status("t1") is TaskStatus.PENDING


def test_the_properties_that_open_files_are_in_no_text(served: Served) -> None:
    served.wait(example("t1"))
    assert "secret" not in repr(served.taken())


def test_poll_and_waits_keep_to_the_given_queue_and_tasks(served: Served) -> None:
    assert not served.queue.waits(None)
    make_groups(served.stores, "heavy")
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


def test_a_paused_table_s_waiting_tasks_are_handed_out_after_the_pause(served: Served) -> None:
    served.wait(example("t1"))
    served.stores.switches.pause(TABLE, True)
    assert not served.queue.waits(None)
    assert served.queue.poll("me", None) is None
    served.stores.switches.pause(TABLE, False)
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


def overtaken(served: Served, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Let "t1" wait. A more urgent task "u1" of OTHER comes while the first catalog call runs; `meanwhile` is called in the second one."""
    served.wait(example("t1"))
    calls = iter([lambda: served.wait(example("u1", table=OTHER, priority=9)), meanwhile])
    served.catalog.before = lambda: next(calls, lambda: None)()


def test_a_task_whose_table_takes_longer_than_the_lease_to_open_starts_with_a_whole_lease(served: Served) -> None:
    overtaken(served, lambda: setattr(served, "now", served.now + LEASE))
    assert served.taken().task.task_id == "u1"
    assert served.stores.tasks.task("u1").lease_expires_at == NOW + 2 * LEASE


def test_a_task_that_is_lost_while_its_table_is_opened_is_not_handed_out(served: Served) -> None:
    def lose() -> None:
        served.now += LEASE
        served.release_lost()
        assert served.stores.tasks.poll(None, "another", served.now, LEASE, ["u1"])

    overtaken(served, lose)
    assert served.taken("me").task.task_id == "t1"
    assert served.stores.tasks.task("u1").owner == "another"


def test_a_task_whose_lease_cannot_be_renewed_is_left_to_its_lease(served: Served) -> None:
    overtaken(served)
    served.stores.tasks.instead(renew=away)
    assert served.taken().task.task_id == "t1"
    served.now += LEASE
    assert set(served.release_lost()) == {"t1", "u1"}


def test_an_attempt_whose_end_cannot_be_stored_is_told_and_left_to_its_lease(served: Served) -> None:
    served.wait(example("t1", max_attempts=2))
    served.catalog.error = StorageUnavailable("catalog away")
    served.stores.tasks.instead(complete=away)
    ended = served.queue.poll("me", None)
    served.stores.tasks.pass_on("complete")
    assert isinstance(ended, EndedAttempt)
    assert (ended.status, ended.result.error, served.status("t1")) == (None, "catalog away", TaskStatus.EXECUTING)
    served.now += LEASE
    assert served.release_lost() == ("t1",)


def test_a_worker_that_starts_asks_for_file_properties_anew(served: Served) -> None:
    served.wait(*(example(name) for name in ("t1", "t2", "t3")))
    owners = ("first", "first", "second")
    assert [served.taken(owner).file_io["s3.secret-access-key"] for owner in owners] == ["secret 1", "secret 1", "secret 2"]


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
    assert served.release_lost() == (silent.task.task_id,)
    assert served.queue.renew([silent.attempt_id, kept.attempt_id]) == (kept.attempt_id,)
    assert served.status(silent.task.task_id) is TaskStatus.PENDING


def test_a_merged_task_is_prepared_and_the_same_report_is_answered_alike(served: Served) -> None:
    served.wait(example("t1"))
    task = served.taken().task
    result = prepared(task)
    assert [served.queue.complete(task, result) for _ in range(2)] == [TaskStatus.PREPARED] * 2
    assert served.stores.tasks.task("t1").result == result
    assert served.catalog.deleted == []


def test_a_failed_task_waits_again_until_its_retries_are_used_up(served: Served) -> None:
    served.wait(example("t1", max_attempts=2))
    first = served.taken().task
    assert served.queue.complete(first, failed(first)) is TaskStatus.PENDING
    second = served.taken().task
    assert served.queue.complete(second, failed(second)) is TaskStatus.FAILED
    assert served.queue.poll("me", None) is None
    for task in (first, second):
        with pytest.raises(StaleAttempt):
            served.queue.complete(task, failed(task))


@pytest.mark.parametrize("reason", [EndReason.FILE_GONE, EndReason.REFUSED])
def test_a_task_that_no_attempt_can_merge_is_given_up_at_once(served: Served, reason: EndReason) -> None:
    served.wait(example("t1", max_attempts=9))
    task = served.taken().task
    assert served.queue.complete(task, replace(failed(task), end_reason=reason)) is TaskStatus.FAILED


def denied(task: CompactionTask) -> MergeResult:
    return replace(failed(task, "no right to read"), end_reason=EndReason.NO_ACCESS)


def test_a_task_whose_store_refuses_access_is_put_aside_and_its_table_says_why(served: Served) -> None:
    served.wait(example("t1"), example("t2", max_attempts=1))
    for task_id, status in (("t1", TaskStatus.CANCELED), ("t2", TaskStatus.FAILED)):
        task = served.taken().task
        assert task.task_id == task_id
        assert served.queue.complete(task, denied(task)) is status
        assert served.status(task_id) is status
    assert served.denied == [(TABLE, "no right to read")]


def test_a_denied_task_is_tried_again_until_its_table_can_show_the_reason(served: Served) -> None:
    served.wait(example("t1", max_attempts=3))
    served.may_note = False
    task = served.taken().task
    assert served.queue.complete(task, denied(task)) is TaskStatus.PENDING
    assert served.status("t1") is TaskStatus.PENDING
    served.may_note = True
    task = served.taken().task
    assert served.queue.complete(task, denied(task)) is TaskStatus.CANCELED
    assert served.denied == [(TABLE, "no right to read")]


def test_a_denied_task_whose_table_can_never_show_the_reason_uses_up_its_attempts(served: Served) -> None:
    served.wait(example("t1", max_attempts=2))
    served.may_note = False
    for status in (TaskStatus.PENDING, TaskStatus.FAILED):
        task = served.taken().task
        assert served.queue.complete(task, denied(task)) is status
    assert served.queue.poll("me", None) is None


def test_an_assignment_says_when_its_credentials_end(served: Served) -> None:
    served.wait(example("t1"), example("t2"))
    assert served.taken().credentials_end_at is None
    served.now += FILE_IO_AGE
    served.catalog.life = timedelta(hours=1)
    assert served.taken().credentials_end_at == served.now + timedelta(hours=1)


def test_credentials_of_which_little_is_left_are_asked_for_anew(served: Served) -> None:
    served.wait(*(example(name) for name in ("t1", "t2", "t3")))
    served.catalog.life = timedelta(seconds=20)
    for second, asked in ((0, 1), (10, 1), (11, 2)):
        served.now = NOW + timedelta(seconds=second)
        served.taken()
        assert len(served.catalog.asked) == asked


def ended(task: CompactionTask) -> MergeResult:
    return replace(failed(task, "ExpiredToken"), end_reason=EndReason.CREDENTIALS_ENDED)


def test_an_attempt_whose_credentials_ended_uses_up_no_retry_three_times(served: Served) -> None:
    served.wait(example("t1", max_attempts=1))
    for _ in range(MOST_EXPIRIES):
        task = served.taken().task
        assert served.queue.complete(task, ended(task)) is TaskStatus.PENDING
    task = served.taken().task
    assert served.queue.complete(task, ended(task)) is TaskStatus.FAILED
    stored = served.stores.tasks.task("t1")
    assert (stored.failures, stored.end_reason) == (1, EndReason.NO_ACCESS)
    assert [attempt.end_reason for attempt in served.stores.tasks.attempts("t1")][:-1] == [EndReason.CREDENTIALS_ENDED] * MOST_EXPIRIES


def test_credentials_that_end_again_and_again_put_the_task_aside(served: Served) -> None:
    served.wait(example("t1", max_attempts=9))
    for status in (*[TaskStatus.PENDING] * MOST_EXPIRIES, TaskStatus.CANCELED):
        task = served.taken().task
        assert served.queue.complete(task, ended(task)) is status
    assert served.denied == [(TABLE, "ExpiredToken")]


def test_a_stale_report_changes_nothing_and_its_files_are_deleted(served: Served) -> None:
    served.wait(example("t1"))
    lost = served.taken("lost")
    served.now += LEASE
    served.release_lost()
    held = served.taken("next")
    result = prepared(lost.task)
    for report in (result, failed(lost.task)):
        with pytest.raises(StaleAttempt, match="no longer holds task"):
            served.queue.complete(lost.task, report)
    assert served.catalog.deleted == [output.path for output in result.outputs]
    assert served.stores.tasks.task("t1") == held.task


def test_the_files_of_an_attempt_are_deleted_when_its_task_was_forgotten(served: Served) -> None:
    served.wait(example("t1"))
    lost = served.taken()
    served.stores.index.forget(TABLE)
    result = prepared(lost.task)
    with pytest.raises(StaleAttempt, match="no longer holds task"):
        served.queue.complete(lost.task, result)
    assert served.catalog.deleted == [output.path for output in result.outputs]


@pytest.mark.parametrize("error", [NotFoundError("table dropped"), StorageUnavailable("catalog away")], ids=str)
@pytest.mark.parametrize("forgotten", [True, False], ids=["forgotten", "lost"])
def test_a_stale_report_stays_stale_when_its_files_cannot_be_deleted(served: Served, forgotten: bool, error: Exception) -> None:
    served.wait(example("t1"))
    lost = served.taken("lost")
    if forgotten:
        served.stores.index.forget(TABLE)
    else:
        served.now += LEASE
        served.release_lost()
    served.catalog.error = error
    with pytest.raises(StaleAttempt):
        served.queue.complete(lost.task, prepared(lost.task))
    assert served.catalog.deleted == []


def test_a_worker_that_leaves_gives_its_own_attempts_back_and_takes_no_more(served: Served) -> None:
    served.wait(*(example(name, priority=-number) for number, name in enumerate(("t1", "t2", "t3"))))
    mine, done, other = served.taken("me"), served.taken("me"), served.taken("you")
    served.queue.complete(done.task, prepared(done.task))
    served.queue.give_back("me", EndReason.INTERRUPTED, "interrupted")
    assert [served.status(name) for name in ("t1", "t2", "t3")] == [TaskStatus.PENDING, TaskStatus.PREPARED, TaskStatus.EXECUTING]
    (attempt,) = served.stores.tasks.attempts(mine.task.task_id)
    assert (attempt.end_reason, attempt.reason) == (EndReason.INTERRUPTED, "interrupted")
    assert served.queue.poll("me", None) is None
    with pytest.raises(StaleAttempt):
        served.queue.complete(mine.task, prepared(mine.task))
    assert served.taken("you").task.task_id == "t1"
    assert served.queue.renew([other.attempt_id])


def test_a_poll_that_runs_while_its_worker_leaves_claims_nothing(served: Served) -> None:
    served.wait(example("t1"))
    served.catalog.before = lambda: served.queue.give_back("me", EndReason.INTERRUPTED, "interrupted")
    assert served.queue.poll("me", None) is None
    assert served.status("t1") is TaskStatus.PENDING


def test_an_unreachable_state_database_is_reported_as_such(served: Served) -> None:
    served.wait(example("t1"))
    held = served.taken()

    served.stores.tasks.instead(complete=away, tasks=away, first_waiting=away, renew=away)
    for call in (
        lambda: served.queue.poll("me", None),
        lambda: served.queue.waits(None),
        lambda: served.queue.renew([held.attempt_id]),
        lambda: served.queue.complete(held.task, prepared(held.task)),
    ):
        with pytest.raises(CompactionError, match="did not answer"):
            call()
    # The worker ends all the same, because its leases end by themselves.
    served.queue.give_back("worker", EndReason.INTERRUPTED, "interrupted")
    assert served.catalog.deleted == []
