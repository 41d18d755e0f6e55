"""A queue keeps up while its tasks do not wait for long, or while it will be empty soon."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.insight.checks.queues import LATELY, LONGEST, queue_keeps_up
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline_tests.builders import NOW

SECOND = timedelta(seconds=1)


def work(wait: timedelta, *, pending: int = 60, **figures: int) -> QueueWork:
    return QueueWork("heavy", pending=pending, waiting_since=NOW - wait, **figures)


@pytest.mark.parametrize(
    "one",
    [
        work(LATELY),
        work(LATELY + SECOND, executing=1),
        work(LONGEST, executing=1),
        work(2 * LONGEST, pending=60, merged=10),
    ],
    ids=["a short wait", "a long merge", "a merge of an hour", "empty in an hour"],
)
def test_a_queue_keeps_up(one: QueueWork) -> None:
    judgement = queue_keeps_up([one], NOW)
    assert (judgement.passed, judgement.judged) == (True, 1)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (work(LATELY + SECOND), "nobody has merged any in the last 10 min"),
        (work(LONGEST + SECOND, executing=2), "none was merged in the last 10 min"),
        (work(LATELY + SECOND, pending=61, merged=10), "at the pace of the last 10 min they need 1 h 1 min"),
    ],
    ids=["nobody takes tasks", "merges do not end", "too slow"],
)
def test_a_queue_falls_behind(one: QueueWork, why: str) -> None:
    judgement = queue_keeps_up([one], NOW)
    (failure,) = judgement.failures
    assert failure.name == "group heavy"
    assert why in failure.reason
    assert str(one.pending) in failure.reason


def test_the_longest_wait_comes_first_and_empty_queues_are_not_judged() -> None:
    judgement = queue_keeps_up(
        [
            QueueWork("short", pending=1, waiting_since=NOW - LATELY - SECOND),
            QueueWork("long", pending=1, waiting_since=NOW - LONGEST),
            QueueWork("paused", paused=5),
        ],
        NOW,
    )
    assert [failure.group for failure in judgement.failures] == ["long", "short"]
    assert judgement.judged == 2
    assert dict(judgement.figures) == {"oldest_wait_seconds": 3600.0}
    assert queue_keeps_up([], NOW).text == "no task waits"


def test_a_queue_with_a_refused_report_fails_although_nothing_waits() -> None:
    judged = queue_keeps_up([QueueWork("q", refused_reports=2), QueueWork("other", merged=1)], NOW)
    [failure] = judged.failures
    assert (failure.group, judged.judged) == ("q", 1)
    assert "2 reports of its optimizers could not be true in the last 10 min" in failure.reason
