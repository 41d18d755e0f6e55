"""The rules for a task: allowed status changes, attempts, leases, commit interval and order."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from compaction_pipeline.core.commit.commit_interval import EARLIEST, PREPARED_BYTES, commit_due
from compaction_pipeline.core.errors import IllegalTransition
from compaction_pipeline.core.leases.timeouts import LEASE, RENEWAL_INTERVAL, expires_at
from compaction_pipeline.core.queue.attempts import after_attempt, after_lost_attempt, max_attempts
from compaction_pipeline.core.queue.open_work import PreparedWork
from compaction_pipeline.core.queue.order import priority_order
from compaction_pipeline.core.queue.task import EndReason, TaskStatus
from compaction_pipeline.core.queue.transitions import ALLOWED, FINAL, allowed
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline_tests.builders import NOW, task

SOME = PreparedWork(tasks=1, input_bytes=1)


def test_every_state_has_its_moves_and_three_are_final() -> None:
    assert set(ALLOWED) == set(TaskStatus)
    assert {TaskStatus.COMMITTED, TaskStatus.FAILED, TaskStatus.CANCELED} == FINAL


@pytest.mark.parametrize(("before", "after"), list(product(TaskStatus, TaskStatus)))
def test_a_move_passes_exactly_when_it_is_allowed(before: TaskStatus, after: TaskStatus) -> None:
    if after in ALLOWED[before]:
        allowed(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"{before.value} cannot become {after.value}"):
            allowed(before, after)


class TaskLife(RuleBasedStateMachine):
    """Polls, reports, lost attempts, conflicts and commits in any order. Only allowed status changes happen, and attempts end."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.attempt, self.most = TaskStatus.PENDING, 0, 3

    def move(self, after: TaskStatus) -> None:
        allowed(self.status, after)
        self.status = after

    @precondition(lambda self: self.status is TaskStatus.PENDING)
    @rule()
    def poll(self) -> None:
        self.attempt += 1
        self.move(TaskStatus.EXECUTING)

    @precondition(lambda self: self.status is TaskStatus.EXECUTING)
    @rule(error=st.none() | st.just("footer unreadable"))
    def report(self, error: str | None) -> None:
        self.move(after_attempt(self.attempt, self.most, EndReason.FAILED if error else EndReason.MERGED))

    @precondition(lambda self: self.status is TaskStatus.EXECUTING)
    @rule()
    def lose(self) -> None:
        self.move(after_lost_attempt(self.attempt, self.most))

    @precondition(lambda self: self.status is TaskStatus.PENDING)
    @rule()
    def replace(self) -> None:
        self.move(TaskStatus.CANCELED)

    @precondition(lambda self: self.status is TaskStatus.PREPARED)
    @rule(conflict=st.booleans())
    def commit(self, conflict: bool) -> None:
        self.move(TaskStatus.FAILED if conflict else TaskStatus.COMMITTED)

    @rule()
    def nothing_happens(self) -> None:
        """Do nothing, because a task may stay in any status."""

    @invariant()
    def attempts_end(self) -> None:
        assert self.attempt <= self.most
        assert self.status is not TaskStatus.PENDING or self.attempt < self.most


TestTaskLife = TaskLife.TestCase


def test_retries_come_after_the_first_attempt() -> None:
    assert max_attempts(TableProperties(num_retries=0)) == 1
    assert after_lost_attempt(1, 1) is TaskStatus.FAILED
    assert after_lost_attempt(3, 4) is TaskStatus.PENDING
    assert after_attempt(4, 4, EndReason.MERGED) is TaskStatus.PREPARED
    assert after_attempt(1, 4, EndReason.REFUSED) is TaskStatus.FAILED
    assert after_attempt(1, 4, EndReason.FILE_GONE) is TaskStatus.FAILED


def test_a_lease_outlives_several_lost_renewals() -> None:
    assert expires_at(NOW) == NOW + LEASE
    assert LEASE >= 3 * RENEWAL_INTERVAL


def test_the_first_commit_is_due_at_once_and_the_next_after_the_interval() -> None:
    interval = timedelta(minutes=5)
    assert commit_due(SOME, None, interval, NOW)
    assert not commit_due(PreparedWork(), None, interval, NOW)
    assert not commit_due(SOME, NOW - timedelta(minutes=4), interval, NOW)
    assert commit_due(SOME, NOW - interval, interval, NOW)


def test_a_commit_before_the_interval_needs_due_nodes_held_back_or_many_bytes_and_thirty_seconds() -> None:
    interval, half_a_minute = timedelta(minutes=5), NOW - EARLIEST
    much = PreparedWork(tasks=1, input_bytes=PREPARED_BYTES)
    assert not commit_due(SOME, half_a_minute, interval, NOW)
    assert commit_due(SOME, half_a_minute, interval, NOW, holds_back=True)
    assert commit_due(much, half_a_minute, interval, NOW)
    assert not commit_due(replace(much, input_bytes=PREPARED_BYTES - 1), half_a_minute, interval, NOW)
    just_now = half_a_minute + timedelta(microseconds=1)
    assert not commit_due(much, just_now, interval, NOW, holds_back=True)
    # A table may have an interval that is shorter than the 30 seconds.
    assert commit_due(SOME, just_now, timedelta(seconds=1), NOW)
    # Tasks that another commit has claimed do not make a commit due.
    assert not commit_due(PreparedWork(claimed=9), half_a_minute, interval, NOW, holds_back=True)


def test_higher_priority_goes_first_then_the_older_then_the_id() -> None:
    old = datetime(2024, 1, 1, tzinfo=timezone.utc)
    tasks = [task("d"), task("c"), task("b", created_at=old), task("a", priority=1)]
    assert [each.task_id for each in sorted(tasks, key=lambda each: priority_order(each.priority, each.created_at, each.task_id))] == [
        "a",
        "b",
        "c",
        "d",
    ]
