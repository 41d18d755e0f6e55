"""When a run that drains the queue ends early."""

from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.defs.draining import Ending
from compaction_pipeline_tests.defs.values import NOW

TEN_MINUTES = timedelta(minutes=10)


def test_a_run_ends_when_its_time_is_up() -> None:
    now = [NOW]
    ending = Ending(lambda: now[0], TEN_MINUTES, lambda: None, "the queue is empty")
    assert not ending.over()
    now[0] = NOW + TEN_MINUTES
    assert ending.over()
    assert ending.reason.startswith("this run's time of 10 min is up")


def test_a_run_ends_when_a_person_waits_for_its_pool() -> None:
    waiting: list[str | None] = [None]
    ending = Ending(lambda: NOW, TEN_MINUTES, lambda: waiting[0], "the queue is empty")
    assert not ending.over()
    waiting[0] = "1234567890"
    assert ending.over()
    assert "run 12345678 waits for pool 'spark_merge'" in ending.reason
