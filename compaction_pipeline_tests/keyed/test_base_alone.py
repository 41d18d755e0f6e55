"""Commits that merge files of a base store with each other, while no change of their partition waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline_tests.keyed.base_commits import TABLE, BaseCommits, span_of, with_span
from compaction_pipeline_tests.keyed.change_logs import row


@pytest.fixture
def log(tmp_path: Path) -> BaseCommits:
    """A base store with two files and a deleted row. The changes up to 1 are merged."""
    log = BaseCommits(tmp_path)
    log.commit(log.changes(1, "I", 0, [(row(9), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(1), row(2)]), log.base_rows(1, 0, [row(3), row(4)]), sequences={"": 1})
    log.delete_rows(log.base_paths()[0], 1)
    return log


def test_the_files_are_merged_and_the_sequence_stays(log: BaseCommits) -> None:
    expected = log.judged()
    (task,) = log.plan(base_alone=True)
    assert (span_of(task).above, span_of(task).up_to, task.work.change_files) == (1, 1, ())
    outcome = log.commit_tasks(task)
    assert (outcome.state, outcome.committed) == (CommitState.COMMITTED, (task.task_id,))
    assert (len(log.base_paths()), outcome.figures.delete_files_dropped, log.sequences()) == (1, 1, {(): 1})
    log.check(expected)
    assert log.committer.settle(TABLE, "record-1", [task]).committed == (task.task_id,)


def test_changes_that_land_meanwhile_reach_the_new_file(log: BaseCommits) -> None:
    tasks = log.plan(base_alone=True)
    log.commit(log.changes(1, "ED", 0, [(row(3), 1)]), log.changes(1, "I", 0, [(row(3, v="new"), 2)]))
    expected = log.judged()
    assert log.commit_tasks(*tasks).state is CommitState.COMMITTED
    log.check(expected)
    assert log.commit_tasks(*log.plan(), record="record-2").state is CommitState.COMMITTED
    log.check(expected)


def test_a_partition_without_a_number_gets_one_that_passes_over_nothing(tmp_path: Path) -> None:
    log = BaseCommits(tmp_path)
    log.append_base(0, [row(1)])
    log.append_base(0, [row(2)])
    assert log.commit_tasks(*log.plan(base_alone=True)).state is CommitState.COMMITTED
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]))
    log.check([row(2)])


def test_a_late_change_is_not_passed_over(log: BaseCommits) -> None:
    tasks = log.plan(base_alone=True)
    # Its delete reaches the file of transaction 0, and it would not reach one of transaction 1.
    log.commit(log.changes(1, "ED", 1, [(row(3), 9)]))
    expected = log.judged()
    (reason,) = log.commit_tasks(*tasks).conflicts.values()
    assert "has landed, and the commit would pass it over" in reason
    log.check(expected)


def test_it_conflicts_when_changes_of_the_partition_were_merged_meanwhile(log: BaseCommits) -> None:
    tasks = log.plan(base_alone=True)
    log.commit(log.changes(1, "I", 0, [(row(5), 1)]))
    expected = log.judged()
    assert log.commit_tasks(*log.plan(), record="record-2").state is CommitState.COMMITTED
    (reason,) = log.commit_tasks(*tasks).conflicts.values()
    assert "the optimized sequence of its partition is 2, but 1 was planned with" in reason
    log.check(expected)


def test_the_sequence_moves_with_changes_and_only_with_them(log: BaseCommits) -> None:
    (alone,) = log.plan(base_alone=True)
    log.commit(log.changes(1, "I", 0, [(row(5), 1)]))
    (merging,) = log.plan()
    expected = log.judged()
    for task, up_to in ((alone, 2), (alone, 0), (merging, 1)):
        spoiled = with_span(task, up_to=up_to)
        (reason,) = log.commit_tasks(spoiled).conflicts.values()
        assert f"it was planned to move the optimized sequence of its partition from 1 to {up_to}" in reason
        log.check(expected)
