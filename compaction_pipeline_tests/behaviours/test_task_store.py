"""Every kind of task store does this: SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from compaction_pipeline.core.errors import IllegalTransition, NotFoundError, StaleAttempt
from compaction_pipeline.core.queue.attempts import MOST_LOSSES
from compaction_pipeline.core.queue.open_work import InUse, OpenTasks, PlannedWork, PreparedWork
from compaction_pipeline.core.queue.order import priority_order
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, make_groups, prepared
from compaction_pipeline_tests.builders import NOW, TABLE, data, node
from compaction_pipeline_tests.works import as_kind

LATER = NOW + timedelta(seconds=30)
EXPIRED = NOW + LEASE
RETRY = timedelta(seconds=60)


def poll(stores: Stores, **changes: object) -> CompactionTask:
    polled = stores.tasks.poll(None, "me", NOW, LEASE, **changes)  # type: ignore[arg-type]
    assert polled is not None
    return polled


def prepare(stores: Stores, *tasks: CompactionTask) -> None:
    assert stores.tasks.insert(tasks, [], NOW)
    for _ in tasks:
        stores.tasks.complete(prepared(poll(stores)), LATER)


def test_a_task_comes_back_as_it_was_inserted(stores: Stores) -> None:
    task = example("t1", group="g", kind=CompactionType.FULL)
    assert stores.tasks.insert([task], [], NOW)
    assert stores.tasks.task("t1") == task


def test_a_task_that_merges_changes_comes_back_as_it_was_inserted(stores: Stores) -> None:
    span = ChangeSpan((data("ins", seq=9),), (data("del", seq=8),), None, 9, 2**62, ("t1-a",), 3)
    task = example("t1", group="g", kind=CompactionType.MAJOR)
    task = replace(task, work=as_kind(task.work, TaskAction.TO_BASE, changes=span))
    assert stores.tasks.insert([task, example("t2")], [], NOW)
    found = stores.tasks.task("t1")
    assert found == task
    assert [file.path for file in found.work.rewritten] == ["t1-b"]
    # The files of the change store are only read, so they are free for others.
    assert set(stores.tasks.in_use(TABLE).pending) == {"t1-a", "t1-b", "t2-a", "t2-b"}


def test_an_unknown_task_is_not_found(stores: Stores) -> None:
    with pytest.raises(NotFoundError, match="t9"):
        stores.tasks.task("t9")


def test_a_poll_of_an_empty_queue_answers_none(stores: Stores) -> None:
    assert stores.tasks.poll(None, "me", NOW, LEASE) is None


def test_a_poll_claims_by_priority_then_age_then_id(stores: Stores) -> None:
    tasks = [
        example("d", created_at=NOW),
        example("c", created_at=NOW - timedelta(hours=1)),
        example("a", priority=9),
        example("b", created_at=NOW),
    ]
    stores.tasks.insert(tasks, [], NOW)
    assert [poll(stores).task_id for _ in tasks] == ["a", "c", "b", "d"]
    assert stores.tasks.poll(None, "me", NOW, LEASE) is None


def test_a_poll_starts_a_new_attempt_with_a_lease(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    task = poll(stores)
    assert (task.status, task.attempt, task.owner, task.started_at) == (TaskStatus.EXECUTING, 1, "me", NOW)
    assert task.lease_expires_at == NOW + LEASE
    assert stores.tasks.task("t1") == task
    (attempt,) = stores.tasks.attempts("t1")
    assert (attempt.attempt_id, attempt.number, attempt.owner, attempt.ended_at) == (task.attempt_id, 1, "me", None)


def test_a_poll_keeps_to_its_queue_and_its_ids(stores: Stores) -> None:
    make_groups(stores, "x")
    stores.tasks.insert([example("a", queue="x"), example("b"), example("c")], [], NOW)
    assert stores.tasks.poll("y", "me", NOW, LEASE) is None
    assert stores.tasks.poll(None, "me", NOW, LEASE, ()) is None
    assert poll(stores, task_ids=[*(f"no-{number}" for number in range(3000)), "c"]).task_id == "c"
    polled = stores.tasks.poll("x", "me", NOW, LEASE)
    assert polled is not None
    assert polled.task_id == "a"


def test_a_report_prepares_its_task_and_keeps_the_result(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    result = prepared(poll(stores))
    assert stores.tasks.complete(result, LATER) is TaskStatus.PREPARED
    task = stores.tasks.task("t1")
    assert (task.result, task.status, task.owner, task.lease_expires_at) == (result, TaskStatus.PREPARED, None, None)
    assert task.attempt_id == result.attempt_id
    assert stores.tasks.attempts("t1")[0].end_reason is EndReason.MERGED


def test_the_same_report_again_is_answered_alike_and_changes_nothing(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    result = prepared(poll(stores))
    stores.tasks.complete(result, LATER)
    before = stores.tasks.task("t1")
    assert stores.tasks.complete(result, LATER) is TaskStatus.PREPARED
    assert stores.tasks.task("t1") == before


def test_a_failed_attempt_is_tried_again_until_its_retries_are_used_up(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=2)], [], NOW)
    first = poll(stores)
    assert stores.tasks.complete(failed(first, "footer unreadable"), LATER) is TaskStatus.PENDING
    waiting = stores.tasks.task("t1")
    assert (waiting.attempt, waiting.attempt_id, waiting.owner, waiting.reason) == (1, None, None, "footer unreadable")
    second = poll(stores)
    assert second.attempt == 2
    assert second.attempt_id != first.attempt_id
    assert stores.tasks.complete(failed(second), LATER) is TaskStatus.FAILED
    assert stores.tasks.task("t1").ended_at == LATER
    assert [attempt.end_reason for attempt in stores.tasks.attempts("t1")] == [EndReason.FAILED, EndReason.FAILED]


def test_a_refused_report_uses_up_no_retry_and_is_counted_by_its_owner(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=1)], [], NOW)
    refused = replace(failed(poll(stores), "it cannot be true"), end_reason=EndReason.REPORT_REFUSED)
    assert stores.tasks.complete(refused, LATER, timedelta(hours=1)) is TaskStatus.PENDING
    assert (stores.tasks.task("t1").failures, stores.tasks.task("t1").losses) == (0, 0)
    assert stores.tasks.refused_reports(LATER) == {"me": 1}
    assert stores.tasks.refused_reports(LATER + timedelta(seconds=1)) == {}


def test_what_an_optimizer_claimed_is_kept_with_its_attempt(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=2)], [], NOW)
    stores.tasks.complete(failed(poll(stores)), LATER, timedelta(0), EndReason.FILE_GONE)
    stores.tasks.complete(failed(poll(stores)), LATER)
    assert [attempt.claimed for attempt in stores.tasks.attempts("t1")] == [EndReason.FILE_GONE, None]


def test_a_stale_attempt_changes_nothing(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    lost = poll(stores)
    assert stores.tasks.release_expired(EXPIRED) == ("t1",)
    held = poll(stores)
    for report in (prepared(lost), failed(lost)):
        with pytest.raises(StaleAttempt):
            stores.tasks.complete(report, LATER)
    assert stores.tasks.renew([str(lost.attempt_id)], LATER, LEASE) == ()
    assert stores.tasks.task("t1") == held


def test_a_report_on_a_task_that_is_gone_is_stale(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    task = poll(stores)
    stores.index.forget(TABLE)
    with pytest.raises(StaleAttempt):
        stores.tasks.complete(prepared(task), LATER)


def test_a_renewed_lease_is_not_released(stores: Stores) -> None:
    stores.tasks.insert([example("t1")], [], NOW)
    attempt_id = str(poll(stores).attempt_id)
    assert stores.tasks.release_expired(EXPIRED - timedelta(seconds=1)) == ()
    assert stores.tasks.renew([attempt_id, "unknown"], LATER, LEASE) == (attempt_id,)
    assert stores.tasks.release_expired(EXPIRED) == ()
    assert stores.tasks.release_expired(LATER + LEASE) == ("t1",)


def test_lost_attempts_use_up_no_retry_but_five_in_a_row_fail_the_task(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=1)], [], NOW)
    for losses in range(1, MOST_LOSSES + 1):
        poll(stores)
        assert stores.tasks.release_expired(EXPIRED) == ("t1",)
        task = stores.tasks.task("t1")
        assert "did not renew" in str(task.reason)
        assert (task.failures, task.losses, task.attempt) == (0, losses, losses)
        assert task.status is (TaskStatus.PENDING if losses < MOST_LOSSES else TaskStatus.FAILED)
    assert (task.ended_at, task.failed_at, task.retry_at, task.is_final) == (EXPIRED, EXPIRED, None, True)
    assert "5 times in a row" in str(task.reason)
    assert {attempt.end_reason for attempt in stores.tasks.attempts("t1")} == {EndReason.LOST}


def test_a_failed_task_waits_until_it_is_put_back(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=2), example("t2")], [], NOW)
    first = poll(stores, task_ids=["t1"])
    assert stores.tasks.complete(failed(first, "footer unreadable"), LATER, RETRY) is TaskStatus.FAILED
    task = stores.tasks.task("t1")
    assert (task.reason, task.failed_at, task.retry_at, task.ended_at) == ("footer unreadable", LATER, LATER + RETRY, None)
    assert (task.attempt, task.failures, task.attempt_id, task.owner, task.lease_expires_at) == (1, 1, None, None, None)
    with pytest.raises(StaleAttempt):
        stores.tasks.complete(prepared(first), LATER)
    assert stores.tasks.poll(None, "me", NOW, LEASE, ["t1"]) is None
    assert stores.tasks.release_expired(LATER + RETRY) == ()
    assert stores.tasks.expire(LATER + RETRY) == 0
    assert stores.tasks.count_waiting_for_retry() == 1
    assert stores.tasks.waiting_for_retry(LATER + RETRY - timedelta(seconds=1), 9) == ()
    assert stores.tasks.waiting_for_retry(LATER + RETRY, 9) == (task,)
    assert stores.tasks.retry(["t2", "unknown", "t1"]) == ("t1",)
    assert stores.tasks.retry(["t1"]) == ()
    back = stores.tasks.task("t1")
    assert (back.status, back.retry_at, back.failed_at, back.reason) == (TaskStatus.PENDING, None, LATER, "footer unreadable")
    second = poll(stores, task_ids=["t1"])
    assert (second.attempt, second.failures) == (2, 1)
    assert stores.tasks.complete(failed(second), LATER, RETRY) is TaskStatus.FAILED
    assert stores.tasks.task("t1").is_final
    assert stores.tasks.count_waiting_for_retry() == 0
    assert stores.tasks.retry(["t1"]) == ()
    assert stores.tasks.cancel(["t1"], EndReason.GIVEN_UP, "asked", LATER) == ()


def waiting(stores: Stores, *tasks: CompactionTask) -> None:
    """Insert tasks, and let the first attempt of each fail. They wait to be tried again."""
    assert stores.tasks.insert(tasks, [], NOW)
    for task in tasks:
        polled = poll(stores, task_ids=[task.task_id])
        assert stores.tasks.complete(failed(polled), NOW, RETRY) is TaskStatus.FAILED


def test_those_that_failed_first_are_put_back_first(stores: Stores) -> None:
    stores.tasks.insert([example(name) for name in "abc"], [], NOW)
    for number, name in enumerate("cab"):
        stores.tasks.complete(failed(poll(stores, task_ids=[name])), NOW + timedelta(seconds=number), RETRY)
    assert [task.task_id for task in stores.tasks.waiting_for_retry(NOW + 2 * RETRY, 2)] == ["c", "a"]


def test_a_waiting_failed_task_holds_its_files_its_node_and_its_group(stores: Stores) -> None:
    waiting(
        stores,
        example("a", kind=CompactionType.FULL, node=node(1)),
        example("b", kind=CompactionType.MAJOR, node=node(2)),
        example("c", group="g"),
    )
    stores.tasks.insert([example("d", kind=CompactionType.MAJOR, node=node(2)), example("e", group="g")], [], NOW)
    for name in "de":
        stores.tasks.complete(prepared(poll(stores, task_ids=[name])), NOW)
    in_use = stores.tasks.in_use(TABLE)
    assert in_use == InUse(
        frozenset({f"{name}-{end}" for name in "abcde" for end in "ab"}),
        frozenset({node(1), node(2)}),
        failed={f"{name}-{end}": name for name in "abc" for end in "ab"},
        failed_groups={"c": "g"},
        failed_nodes=frozenset({node(1)}),
    )
    assert in_use.for_person() == replace(
        in_use,
        paths=frozenset({"d-a", "d-b", "e-a", "e-b"}),
        exclusive_nodes=frozenset({node(2)}),
        pending=in_use.failed,
        pending_groups={"c": "g"},
    )
    assert stores.tasks.planned_work(TABLE) == PlannedWork(3, 3 * example("x").work.input_bytes)
    assert not stores.tasks.insert([example("f", files=("a-a",))], [], NOW)
    assert [task.task_id for task in stores.tasks.claim(TABLE, "r1")] == ["d"]


def test_a_plan_of_a_person_replaces_a_waiting_failed_task(stores: Stores) -> None:
    waiting(stores, example("a", files=("1", "2")), example("b", files=("3",)))
    assert stores.tasks.insert([example("c", files=("1", "4"))], ["a"], LATER)
    task = stores.tasks.task("a")
    assert (task.status, task.end_reason, task.retry_at, task.ended_at) == (TaskStatus.CANCELED, EndReason.REPLACED, None, LATER)
    assert stores.tasks.count_replaced() == 1
    stores.tasks.retry(["b"])
    poll(stores, task_ids=["b"])
    assert not stores.tasks.insert([example("d", files=("3", "5"))], ["b"], LATER)


def test_a_waiting_failed_task_is_canceled_like_a_pending_one(stores: Stores) -> None:
    waiting(stores, example("a"))
    assert stores.tasks.cancel(["a"], EndReason.OUTDATED, "a file is gone", LATER) == ("a",)
    task = stores.tasks.task("a")
    assert (task.status, task.end_reason, task.reason, task.ended_at, task.retry_at) == (
        TaskStatus.CANCELED,
        EndReason.OUTDATED,
        "a file is gone",
        LATER,
        None,
    )
    assert stores.tasks.waiting_for_retry(NOW + RETRY, 9) == ()


def test_an_attempt_that_takes_too_long_fails_although_its_lease_is_renewed(stores: Stores) -> None:
    timeout = timedelta(hours=1)
    stores.tasks.insert([example("t1", max_attempts=2), example("t2")], [], NOW)
    slow = poll(stores, task_ids=["t1"])
    end = NOW + timeout
    stores.tasks.poll(None, "me", end - LEASE, LEASE, ["t2"])
    stores.tasks.renew([slow.current_attempt_id], end, LEASE)
    assert stores.tasks.end_overdue(end - timedelta(seconds=1), timeout, RETRY) == ()
    assert stores.tasks.end_overdue(end, timeout, RETRY) == ("t1",)
    task = stores.tasks.task("t1")
    assert (task.status, task.retry_at, task.failures, task.end_reason) == (TaskStatus.FAILED, end + RETRY, 1, EndReason.TIMED_OUT)
    assert "longer than 1 h" in str(task.reason)
    assert "COMPACTION_TASK_TIMEOUT_SECONDS" in str(task.reason)
    assert stores.tasks.attempts("t1")[0].end_reason is EndReason.TIMED_OUT
    assert stores.tasks.renew([slow.current_attempt_id], end, LEASE) == ()
    with pytest.raises(StaleAttempt):
        stores.tasks.complete(prepared(slow), end)
    stores.tasks.retry(["t1"])
    stores.tasks.poll(None, "me", end, LEASE, ["t1"])
    assert stores.tasks.end_overdue(end + timeout, timeout, RETRY) == ("t1", "t2")
    assert stores.tasks.task("t1").is_final


def test_an_attempt_that_was_given_back_counts_as_nothing(stores: Stores) -> None:
    stores.tasks.insert([example("t1", max_attempts=1)], [], NOW)
    for _ in range(3):
        given_back = replace(failed(poll(stores), "interrupted"), end_reason=EndReason.INTERRUPTED)
        assert stores.tasks.complete(given_back, LATER, RETRY) is TaskStatus.PENDING
    assert (stores.tasks.task("t1").failures, stores.tasks.task("t1").failed_at) == (0, None)


def test_a_task_keeps_the_times_of_its_life(stores: Stores) -> None:
    prepare(stores, example("a", waiting_since=NOW - timedelta(hours=1)))
    stores.tasks.commit(["a"], EXPIRED)
    task = stores.tasks.task("a")
    assert (task.waiting_since, task.created_at, task.started_at) == (NOW - timedelta(hours=1), NOW, NOW)
    assert (task.prepared_at, task.committed_at, task.ended_at) == (LATER, EXPIRED, EXPIRED)


def test_a_plan_replaces_pending_tasks_or_changes_nothing(stores: Stores) -> None:
    stores.tasks.insert([example("a", files=("1",)), example("b", files=("2",))], [], NOW)
    poll(stores, task_ids=["a"])
    assert not stores.tasks.insert([example("c", files=("1", "2"))], ["b", "a"], LATER)
    assert stores.tasks.task("b").status is TaskStatus.PENDING
    assert not stores.tasks.insert([example("c", files=("2",))], ["unknown"], LATER)
    assert stores.tasks.insert([example("c", files=("2", "3"))], ["b"], LATER)
    assert stores.tasks.task("b").status is TaskStatus.CANCELED
    assert stores.tasks.in_use(TABLE).pending == {"2": "c", "3": "c"}


def test_a_plan_that_takes_a_file_in_use_changes_nothing(stores: Stores) -> None:
    stores.tasks.insert([example("a", files=("1", "2"))], [], NOW)
    assert not stores.tasks.insert([example("b", files=("2", "3"))], [], NOW)
    poll(stores)
    assert not stores.tasks.insert([example("b", files=("2", "3"))], [], NOW)
    assert [task.task_id for task in stores.tasks.tasks()] == ["a"]


def test_in_use_tells_running_from_pending(stores: Stores) -> None:
    tasks = [
        example("a", kind=CompactionType.FULL, node=node(1)),
        example("b", kind=CompactionType.MAJOR, node=node(2)),
        example("c", group="g"),
        example("d"),
    ]
    stores.tasks.insert(tasks, [], NOW)
    poll(stores, task_ids=["a"])
    stores.tasks.complete(prepared(poll(stores, task_ids=["d"])), NOW)
    assert stores.tasks.in_use(TABLE) == InUse(
        frozenset({"a-a", "a-b", "d-a", "d-b"}),
        frozenset({node(1)}),
        {"b-a": "b", "b-b": "b", "c-a": "c", "c-b": "c"},
        {"c": "g"},
    )
    assert stores.tasks.in_use(TableIdentifier("lake", ("shop",), "other")) == InUse()


def test_ended_tasks_free_their_files(stores: Stores) -> None:
    prepare(stores, example("a"))
    stores.tasks.commit(["a"], LATER)
    assert stores.tasks.in_use(TABLE) == InUse()


def test_a_claim_takes_prepared_tasks_once(stores: Stores) -> None:
    prepare(stores, example("a"), example("b"))
    stores.tasks.insert([example("c")], [], NOW)
    assert [task.task_id for task in stores.tasks.claim(TABLE, "r1", ["b", "c"])] == ["b"]
    (claimed,) = stores.tasks.claim(TABLE, "r2")
    assert (claimed.task_id, claimed.record_id, claimed.result is not None) == ("a", "r2", True)
    assert stores.tasks.claim(TABLE, "r3") == ()
    assert [task.task_id for task in stores.tasks.tasks(record_id="r1")] == ["b"]


def test_a_group_is_claimed_when_none_of_it_is_under_way(stores: Stores) -> None:
    stores.tasks.insert([example("a", group="g"), example("b", group="g"), example("c")], [], NOW)
    for task_id in ("a", "c"):
        stores.tasks.complete(prepared(poll(stores, task_ids=[task_id])), NOW)
    assert [task.task_id for task in stores.tasks.claim(TABLE, "r1")] == ["c"]
    last = poll(stores)
    assert stores.tasks.claim(TABLE, "r1", ["a"]) == ()
    stores.tasks.complete(prepared(last), NOW)
    # The whole group comes, although only one of its tasks is asked for.
    assert [task.task_id for task in stores.tasks.claim(TABLE, "r1", ["a"])] == ["a", "b"]


def test_unclaimed_tasks_can_be_claimed_again_and_committed_ones_stay(stores: Stores) -> None:
    prepare(stores, example("a"), example("b"))
    stores.tasks.claim(TABLE, "r1")
    stores.tasks.commit(["a"], LATER)
    stores.tasks.unclaim("r1")
    assert stores.tasks.task("a").record_id == "r1"
    assert [task.task_id for task in stores.tasks.claim(TABLE, "r2")] == ["b"]


def test_a_commit_is_all_or_nothing_and_may_be_repeated(stores: Stores) -> None:
    prepare(stores, example("a"), example("b"))
    stores.tasks.insert([example("c")], [], NOW)
    for wrong, error in ((["a", "c"], IllegalTransition), (["a", "unknown"], NotFoundError)):
        with pytest.raises(error):
            stores.tasks.commit(wrong, LATER)
        assert stores.tasks.task("a").status is TaskStatus.PREPARED
    stores.tasks.commit(["a"], LATER)
    stores.tasks.commit(["a", "b"], EXPIRED)
    assert [stores.tasks.task(task_id).ended_at for task_id in "ab"] == [LATER, EXPIRED]


def test_a_conflict_fails_a_prepared_task_for_good(stores: Stores) -> None:
    prepare(stores, example("a"))
    stores.tasks.fail("a", EndReason.CONFLICT, "conflict: input gone", LATER)
    task = stores.tasks.task("a")
    assert (task.status, task.reason, task.ended_at) == (TaskStatus.FAILED, "conflict: input gone", LATER)
    for change in (lambda: stores.tasks.fail("a", EndReason.CONFLICT, "again", LATER), lambda: stores.tasks.commit(["a"], LATER)):
        with pytest.raises(IllegalTransition):
            change()


def test_failing_an_executing_task_makes_its_attempt_stale(stores: Stores) -> None:
    stores.tasks.insert([example("a")], [], NOW)
    task = poll(stores)
    stores.tasks.fail("a", EndReason.CONFLICT, "the table is gone", LATER)
    with pytest.raises(StaleAttempt):
        stores.tasks.complete(prepared(task), LATER)
    assert stores.tasks.attempts("a")[0].reason == "the table is gone"


def test_a_pending_task_is_canceled_but_never_failed(stores: Stores) -> None:
    stores.tasks.insert([example("a"), example("b")], [], NOW)
    poll(stores)
    with pytest.raises(IllegalTransition):
        stores.tasks.fail("b", EndReason.CONFLICT, "no", LATER)
    assert stores.tasks.cancel(["a", "b", "unknown"], EndReason.GIVEN_UP, "asked", LATER) == ("b",)
    assert stores.tasks.counts() == {TaskStatus.EXECUTING: 1, TaskStatus.CANCELED: 1}


def test_a_running_task_is_canceled_only_when_that_is_asked_for_and_its_report_is_stale(stores: Stores) -> None:
    stores.tasks.insert([example("a"), example("b")], [], NOW)
    task = poll(stores)
    canceled = stores.tasks.cancel(["a", "b", "unknown"], EndReason.GIVEN_UP, "asked", LATER, running=True)
    assert canceled == ("a", "b")
    stored = stores.tasks.task("a")
    assert (stored.status, stored.attempt_id, stored.owner, stored.ended_at) == (TaskStatus.CANCELED, None, None, LATER)
    (attempt,) = stores.tasks.attempts("a")
    assert (attempt.ended_at, attempt.end_reason, attempt.reason) == (LATER, EndReason.GIVEN_UP, "asked")
    assert stores.tasks.renew([task.current_attempt_id], LATER, LEASE) == ()
    for report in (prepared(task), failed(task)):
        with pytest.raises(StaleAttempt):
            stores.tasks.complete(report, LATER)
    assert stores.tasks.in_use(TABLE) == InUse()
    prepare(stores, example("c"))
    assert stores.tasks.cancel(["a", "c"], EndReason.GIVEN_UP, "asked", LATER, running=True) == ()


def test_tasks_are_listed_newest_first_and_filtered(stores: Stores) -> None:
    other = TableIdentifier("lake", ("shop",), "a.b`c")
    stores.tasks.insert([example("a", created_at=NOW - timedelta(1)), example("b"), example("c"), example("d", table=other)], [], NOW)
    poll(stores, task_ids=["b"])
    assert [task.task_id for task in stores.tasks.tasks()] == ["d", "c", "b", "a"]
    assert [task.task_id for task in stores.tasks.tasks(TABLE, limit=2)] == ["c", "b"]
    assert [task.task_id for task in stores.tasks.tasks(statuses=(TaskStatus.EXECUTING,))] == ["b"]
    assert [task.table for task in stores.tasks.tasks(other)] == [other]


def test_only_ended_tasks_expire(stores: Stores) -> None:
    prepare(stores, example("a"), example("b"))
    stores.tasks.insert([example("c")], [], NOW)
    stores.tasks.commit(["a"], LATER)
    assert stores.tasks.expire(LATER) == 0
    assert stores.tasks.expire(LATER + timedelta(seconds=1)) == 1
    assert sorted(task.task_id for task in stores.tasks.tasks()) == ["b", "c"]
    assert stores.tasks.attempts("a") == ()


def test_work_under_way_is_counted_by_table_without_what_is_prepared(stores: Stores) -> None:
    size = example("x").work.input_bytes
    prepare(stores, example("done"), example("claimed"))
    assert [task.task_id for task in stores.tasks.claim(TABLE, "record", ["claimed"])] == ["claimed"]
    other = TableIdentifier("lake", ("shop",), "other")
    stores.tasks.insert([example("one"), example("two")], [], NOW)
    poll(stores)
    assert stores.tasks.planned_work(TABLE) == PlannedWork(2, 2 * size)
    assert stores.tasks.planned_work(other) == PlannedWork()
    assert stores.tasks.prepared_work() == {TABLE: PreparedWork(tasks=1, input_bytes=size, claimed=1)}


def test_open_tasks_are_counted_by_table_and_by_what_they_wait_for(stores: Stores) -> None:
    other = TableIdentifier("lake", ("shop",), "other")
    prepare(stores, example("ended"), example("done"), example("claimed"))
    stores.tasks.commit(["ended"], NOW)
    stores.tasks.claim(TABLE, "record", ["claimed"])
    stores.tasks.insert([example("one"), example("two"), example("three"), example("four", table=other)], [], NOW)
    poll(stores, task_ids=["one"])
    assert stores.tasks.open_tasks() == {TABLE: OpenTasks(waiting=2, merging=1, merged=2), other: OpenTasks(waiting=1)}
    assert stores.tasks.open_tasks(other) == {other: OpenTasks(waiting=1)}
    stores.index.add(TABLE)
    stores.switches.pause(TABLE, True)
    assert stores.tasks.open_tasks(TABLE) == {TABLE: OpenTasks(merging=1, merged=2, paused=2)}
    assert stores.tasks.open_tasks(TableIdentifier("lake", ("shop",), "none")) == {}


def test_first_waiting_names_the_table_of_a_pending_task(stores: Stores) -> None:
    assert stores.tasks.first_waiting(None) is None
    make_groups(stores, "heavy")
    stores.tasks.insert([example("one", queue="heavy")], [], NOW)
    assert stores.tasks.first_waiting(None) == TABLE
    assert stores.tasks.first_waiting("heavy", ["one", "two"]) == TABLE
    assert stores.tasks.first_waiting("light") is None
    assert stores.tasks.first_waiting(None, ["two"]) is None
    poll(stores)
    assert stores.tasks.first_waiting(None) is None


def test_waiting_tasks_of_a_paused_table_have_no_turn_until_it_is_resumed(stores: Stores) -> None:
    other = TableIdentifier("lake", ("shop",), "other")
    for table in (TABLE, other):
        stores.index.add(table)
    stores.tasks.insert([example("before", priority=9)], [], NOW)
    stores.switches.pause(TABLE, True)
    stores.tasks.insert([example("after", priority=9), example("free", table=other)], [], NOW)
    assert stores.tasks.paused() == 2
    assert stores.tasks.first_waiting(None) == other
    assert stores.tasks.first_waiting(None, ["before", "after"]) is None
    assert stores.tasks.poll(None, "me", NOW, LEASE, ["before", "after"]) is None
    assert poll(stores).task_id == "free"
    assert stores.tasks.poll(None, "me", NOW, LEASE) is None
    stores.switches.pause(TABLE, False)
    assert stores.tasks.paused() == 0
    assert [poll(stores).task_id for _ in range(2)] == ["after", "before"]


def test_a_failed_task_that_waits_is_paused_and_resumed_with_its_table(stores: Stores) -> None:
    stores.index.add(TABLE)
    waiting(stores, example("t1"))
    assert stores.tasks.open_tasks() == {TABLE: OpenTasks(failed=1)}
    stores.switches.pause(TABLE, True)
    assert stores.tasks.retry(["t1"]) == ("t1",)
    assert (stores.tasks.paused(), stores.tasks.poll(None, "me", LATER, LEASE)) == (1, None)
    stores.switches.pause(TABLE, False)
    stores.tasks.complete(failed(poll(stores)), LATER, RETRY)
    stores.switches.pause(TABLE, True)
    stores.switches.pause(TABLE, False)
    stores.tasks.retry(["t1"])
    assert poll(stores).task_id == "t1"


def test_a_task_that_runs_when_its_table_is_paused_is_finished(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.tasks.insert([example("merges"), example("fails"), example("lost")], [], NOW)
    running = {task.task_id: task for task in (poll(stores) for _ in range(3))}
    stores.switches.pause(None, True)
    assert stores.tasks.renew([str(running["merges"].attempt_id)], LATER, LEASE) == (running["merges"].attempt_id,)
    assert stores.tasks.complete(prepared(running["merges"]), LATER) is TaskStatus.PREPARED
    assert [task.task_id for task in stores.tasks.claim(TABLE, "record")] == ["merges"]
    assert stores.tasks.complete(failed(running["fails"]), LATER) is TaskStatus.PENDING
    assert stores.tasks.release_expired(EXPIRED) == ("lost",)
    assert stores.tasks.paused() == 2
    assert stores.tasks.poll(None, "me", LATER, LEASE) is None
    stores.switches.pause(TABLE, False)
    assert [poll(stores).task_id for _ in range(2)] == ["fails", "lost"]


def test_the_waiting_table_is_that_of_the_task_that_a_poll_claims(stores: Stores) -> None:
    tables = [TableIdentifier("lake", ("shop",), name) for name in ("a", "b", "c")]
    tasks = [example(table.name, table=table, priority=number % 2) for number, table in enumerate(tables)]
    stores.tasks.insert(tasks, [], NOW)
    for ids in (None, [task.task_id for task in tasks]):
        waiting = stores.tasks.first_waiting(None, ids)
        assert waiting == poll(stores, task_ids=ids).table


def test_polls_claim_in_the_order_of_the_core(stores: Stores) -> None:
    ages = (timedelta(0), timedelta(microseconds=1), timedelta(hours=5), timedelta(days=400))
    places = list(product((0, -3, 7), ages, ("x", "y")))
    tasks = [
        example(f"{name}{number}", priority=priority, created_at=NOW - age, inputs_kb=10 if number % 3 else 200)
        for number, (priority, age, name) in enumerate(reversed(places))
    ]
    stores.tasks.insert(tasks, [], NOW)
    expected = sorted(tasks, key=lambda task: priority_order(task.priority, task.work.small_files, task.created_at, task.task_id))
    # With so many ids, the store looks them up in several batches.
    ids = [*(f"no-{number}" for number in range(3000)), *(task.task_id for task in tasks)]
    polled = [poll(stores, task_ids=ids if number % 2 else None).task_id for number in range(len(tasks))]
    assert polled == [task.task_id for task in expected]


@pytest.mark.parametrize("queue", [None, "x"])
def test_polls_of_one_queue_and_of_all_queues_follow_the_same_order(stores: Stores, queue: str | None) -> None:
    names = "abcdef"
    make_groups(stores, "x", "y")
    tasks = [example(name, queue="y" if name in "be" else "x", priority=number % 3) for number, name in enumerate(names)]
    stores.tasks.insert(tasks, [], NOW)
    expected = sorted(
        (task for task in tasks if queue in (None, task.queue)),
        key=lambda task: priority_order(task.priority, task.work.small_files, task.created_at, task.task_id),
    )
    polled = [stores.tasks.poll(queue, "me", NOW, LEASE) for _ in expected]
    assert [task.task_id for task in polled if task is not None] == [task.task_id for task in expected]
    assert queue is None or stores.tasks.poll(queue, "me", NOW, LEASE) is None


def test_a_task_keeps_the_place_in_line_of_the_tasks_that_it_replaces(stores: Stores) -> None:
    old, older = NOW - timedelta(hours=1), NOW - timedelta(hours=2)
    stores.tasks.insert([example("a", files=("1",), created_at=old), example("b", files=("2",), created_at=older)], [], NOW)
    stores.tasks.insert([example("c", files=("3",), created_at=NOW - timedelta(minutes=90))], [], NOW)
    assert stores.tasks.insert([example("d", files=("1", "2", "4")), example("e", files=("5",))], ["a", "b"], NOW)
    assert (stores.tasks.task("d").waiting_since, stores.tasks.task("d").created_at) == (older, NOW)
    assert stores.tasks.task("e").waiting_since == NOW
    assert stores.tasks.insert([example("f", files=("1", "2", "4", "6"))], ["d"], NOW)
    assert [poll(stores).task_id for _ in range(3)] == ["f", "c", "e"]


def test_a_task_that_is_put_back_keeps_its_place_in_line(stores: Stores) -> None:
    stores.tasks.insert([example("a", created_at=NOW - timedelta(hours=1)), example("b")], [], NOW)
    stores.tasks.complete(failed(poll(stores)), NOW, RETRY)
    stores.tasks.retry(["a"])
    assert poll(stores).task_id == "a"
