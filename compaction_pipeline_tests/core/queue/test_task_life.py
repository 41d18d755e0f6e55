"""The rules for a task: allowed status changes, attempts, leases and commit interval."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from compaction_pipeline.core.commit.commit_interval import EARLIEST, PREPARED_BYTES, commit_due
from compaction_pipeline.core.errors import IllegalTransition
from compaction_pipeline.core.leases.timeouts import LEASE, RENEWAL_INTERVAL, expires_at
from compaction_pipeline.core.queue.attempts import (
    MOST_LOSSES,
    AfterAttempt,
    Tries,
    after_attempt,
    attempt_text,
    is_tried_again,
    max_attempts,
)
from compaction_pipeline.core.queue.open_work import PreparedWork
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.queue.transitions import ALLOWED, FINAL, allowed
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.builders import NOW, task

SOME = PreparedWork(tasks=1, input_bytes=1)


def test_every_state_has_its_moves_and_three_are_final() -> None:
    assert set(ALLOWED) == set(TaskStatus)
    assert {TaskStatus.COMMITTED, TaskStatus.CANCELED} == FINAL
    final = {status for status in TaskStatus if task(status=status).is_final}
    assert final == {TaskStatus.COMMITTED, TaskStatus.FAILED, TaskStatus.CANCELED}


def test_a_failed_task_that_waits_is_open_and_one_that_failed_for_good_never_changes() -> None:
    waits = task(status=TaskStatus.FAILED, retry_at=NOW)
    assert (waits.is_final, waits.is_to_be_merged, waits.waits_for_retry) == (False, True, True)
    for after in TaskStatus:
        with pytest.raises(IllegalTransition, match="this status is final"):
            allowed(TaskStatus.FAILED, after, for_good=True)
    assert ALLOWED[TaskStatus.FAILED] == {TaskStatus.PENDING, TaskStatus.CANCELED}


def test_a_move_passes_exactly_when_it_is_allowed() -> None:
    for before, after in product(TaskStatus, TaskStatus):
        if after in ALLOWED[before]:
            allowed(before, after)
        else:
            with pytest.raises(IllegalTransition, match=f"{before.value} cannot become {after.value}"):
                allowed(before, after)


RETRY = timedelta(seconds=60)


class TaskLife(RuleBasedStateMachine):
    """Polls, reports, lost and given back attempts, retries, conflicts and commits in any order. Only allowed changes happen."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.tries, self.most = TaskStatus.PENDING, Tries(), 3
        self.retry_at: datetime | None = None
        self.now = NOW

    def move(self, after: TaskStatus, retry_at: datetime | None = None) -> None:
        allowed(self.status, after, for_good=self.status is TaskStatus.FAILED and self.retry_at is None)
        self.status, self.retry_at = after, retry_at

    def end(self, reason: EndReason) -> None:
        after = after_attempt(self.tries, self.most, reason, self.now, RETRY)
        self.move(after.status, after.retry_at)
        self.tries = after.tries

    @precondition(lambda self: self.status is TaskStatus.PENDING)
    @rule()
    def poll(self) -> None:
        self.move(TaskStatus.EXECUTING)

    @precondition(lambda self: self.status is TaskStatus.EXECUTING)
    @rule(reason=st.sampled_from((EndReason.MERGED, EndReason.FAILED, EndReason.TIMED_OUT, EndReason.LOST, EndReason.INTERRUPTED)))
    def end_an_attempt(self, reason: EndReason) -> None:
        self.end(reason)

    @precondition(lambda self: self.status is TaskStatus.FAILED and self.retry_at is not None)
    @rule(replaced=st.booleans())
    def leave_the_wait(self, replaced: bool) -> None:
        self.move(TaskStatus.CANCELED if replaced else TaskStatus.PENDING)

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
        assert self.tries.failures <= self.most
        assert self.tries.losses <= MOST_LOSSES
        waits = self.status is TaskStatus.PENDING or self.retry_at is not None
        assert not waits or (self.tries.failures < self.most and self.tries.losses < MOST_LOSSES)

    @invariant()
    def only_a_failed_task_has_a_time_of_retry(self) -> None:
        assert self.retry_at is None or self.status is TaskStatus.FAILED


TestTaskLife = TaskLife.TestCase


def after(reason: EndReason, tries: Tries = Tries(), most: int = 4, retry: timedelta = RETRY) -> AfterAttempt:
    return after_attempt(tries, most, reason, NOW, retry)


@pytest.mark.parametrize("reason", [EndReason.FAILED, EndReason.TIMED_OUT, EndReason.DIGEST_MISMATCH, EndReason.NO_ACCESS])
def test_a_failed_attempt_uses_up_a_retry_and_its_task_waits(reason: EndReason) -> None:
    assert max_attempts(TableProperties(num_retries=0)) == 1
    assert after(reason, Tries(0, 3)) == AfterAttempt(TaskStatus.FAILED, Tries(1, 0), NOW + RETRY)
    assert after(reason, Tries(3)) == AfterAttempt(TaskStatus.FAILED, Tries(4))
    assert after(reason, retry=timedelta(0)) == AfterAttempt(TaskStatus.PENDING, Tries(1))


def test_a_lost_attempt_uses_up_no_retry_until_the_task_was_lost_five_times_in_a_row() -> None:
    tries = Tries(3)
    for losses in range(1, MOST_LOSSES):
        outcome = after(EndReason.LOST, tries)
        assert outcome == AfterAttempt(TaskStatus.PENDING, Tries(3, losses))
        tries = outcome.tries
    assert after(EndReason.LOST, tries) == AfterAttempt(TaskStatus.FAILED, Tries(3, MOST_LOSSES))
    assert after(EndReason.FAILED, Tries(0, 4)).tries == Tries(1, 0)


def test_an_attempt_that_was_given_back_counts_as_nothing() -> None:
    assert after(EndReason.INTERRUPTED, Tries(3, 4)) == AfterAttempt(TaskStatus.PENDING, Tries(3, 4))


def test_a_merge_and_a_hopeless_end_are_final_for_the_attempts() -> None:
    assert after(EndReason.MERGED, Tries(3, 2)) == AfterAttempt(TaskStatus.PREPARED, Tries(3))
    assert after(EndReason.REFUSED) == AfterAttempt(TaskStatus.FAILED, Tries(1))
    assert after(EndReason.FILE_GONE) == AfterAttempt(TaskStatus.FAILED, Tries(1))


def test_a_worker_knows_from_its_assignment_whether_a_task_is_tried_again() -> None:
    for reason, failures, losses in product(EndReason, range(5), range(6)):
        if reason is EndReason.MERGED:
            continue
        outcome = after(reason, Tries(failures, losses))
        claimed = task(status=TaskStatus.EXECUTING, failures=failures, losses=losses)
        result = MergeResult(claimed.task_id, claimed.current_attempt_id, (), end_reason=reason, error="e")
        told = replace(claimed, status=outcome.status, result=result)
        stored = replace(claimed, status=outcome.status, retry_at=outcome.retry_at)
        assert is_tried_again(told) is stored.is_to_be_merged, (reason, failures, losses)


@pytest.mark.parametrize(
    ("example", "text"),
    [
        (task(), "–"),
        (task(status=TaskStatus.EXECUTING, attempt=9, failures=1, losses=3), "9 (1 of 4 failed)"),
        (task(status=TaskStatus.FAILED, attempt=4, failures=4), "4 (4 of 4 failed)"),
        (task(status=TaskStatus.PREPARED, attempt=1), "1 (0 of 4 failed)"),
    ],
)
def test_an_attempt_in_words(example: CompactionTask, text: str) -> None:
    assert attempt_text(example) == text


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
