"""The log of a run says what happens from its first second, and does not repeat itself."""

from __future__ import annotations

from datetime import timedelta
from threading import Event

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.defs.run_progress import RunProgress
from compaction_pipeline_tests.defs.values import ORDERS, task

SOON = timedelta(milliseconds=1)


class Log:
    """The lines of a run whose clock and whose queue a test sets."""

    def __init__(self, spark: str | None = "Spark at local[2]") -> None:
        self.lines: list[str] = []
        self.now = 100.0
        self.open = 3
        self.progress = RunProgress(self.lines.append, lambda: self.open, spark, lambda: self.now)


def test_the_start_of_spark_is_said_once() -> None:
    log = Log()
    for _ in range(2):
        log.progress.engine_starts()
        log.now += 9.3
        log.progress.engine_started()
    assert log.lines == ["starting Spark at local[2]", "Spark has started in 9.3 s; 3 tasks to merge"]


def test_without_spark_nothing_is_said_of_it() -> None:
    log = Log(spark=None)
    log.progress.engine_starts()
    log.progress.engine_started()
    assert log.lines == []


def test_the_first_merge_and_every_end_say_how_far_the_run_is() -> None:
    log = Log()
    log.progress.task_began(task("t1", 1))
    log.progress.task_began(task("t2", 2))
    assert log.lines == ["merging lake.shop.orders day=2026-01-01: 3 files, 3.1 MB"]
    log.now += 2
    log.open = 2
    assert log.progress.task_ended(task("t1", 1), TaskStatus.PREPARED) == "1 of 3 tasks so far, 1.6 MB/s, about 4 s of merging left"


def test_an_attempt_that_is_tried_again_is_not_done() -> None:
    log = Log()
    log.progress.task_began(task("t1", 1))
    log.now += 5
    assert log.progress.task_ended(task("t1", 1), TaskStatus.PENDING) == "0 of 3 tasks so far"


def test_a_run_with_tasks_of_its_own_counts_them_apart_from_what_sensors_queue_meanwhile() -> None:
    log = Log()
    mine = [task(f"t{number}", number) for number in (1, 2, 3)]
    log.progress.planned(mine)
    log.progress.task_began(mine[0])
    log.now += 2
    log.open = 2
    assert log.progress.task_ended(mine[0], TaskStatus.PREPARED) == "1 of 3 tasks of this run, 1.6 MB/s, about 4 s of merging left"
    log.open = 14
    log.progress.task_began(task("other", 8))
    log.now += 2
    said = log.progress.task_ended(task("other", 8), TaskStatus.PREPARED)
    assert said == "1 of 3 tasks of this run (1 of others done, 12 open), 1.6 MB/s, about 4 s of merging left"
    # A commit found the node of day 2 changed, so it was planned again. An optimizer merged day 3.
    log.progress.planned([task("again", 2)])
    log.progress.settled(["t3", "of another"])
    log.open = 1
    assert log.progress.task_ended(task("again", 2), TaskStatus.PENDING).startswith("2 of 3 tasks of this run (1 of others done, 0 open), ")


def test_after_some_silence_the_running_merges_are_named() -> None:
    log = Log()
    for number in range(1, 6):
        log.progress.task_began(task(f"t{number}", number))
    log.progress.waits()
    log.now += 16
    log.progress.waits()
    log.progress.waits()
    assert log.lines[1:] == [
        "still merging lake.shop.orders day=2026-01-01 for 16 s, lake.shop.orders day=2026-01-02 for 16 s, "
        "lake.shop.orders day=2026-01-03 for 16 s, 2 more; 0 of 3 tasks so far"
    ]


def test_a_run_that_merges_nothing_stays_silent() -> None:
    log = Log()
    log.now += 100
    log.progress.waits()
    assert log.lines == []


def test_a_time_without_tasks_does_not_slow_the_pace() -> None:
    log = Log()
    log.progress.task_began(task("t1", 1))
    log.now, log.open = log.now + 2, 0
    assert log.progress.task_ended(task("t1", 1), TaskStatus.PREPARED) == "1 of 1 task so far, 1.6 MB/s"
    log.now, log.open = log.now + 3_600, 4
    log.progress.task_began(task("t2", 2))
    log.now, log.open = log.now + 2, 3
    assert log.progress.task_ended(task("t2", 2), TaskStatus.PREPARED) == "2 of 5 tasks so far, 1.6 MB/s, about 6 s of merging left"


def test_a_commit_says_that_all_is_merged_and_that_it_goes_on() -> None:
    log, went_on = Log(), Event()

    def say(line: str) -> None:
        log.lines.append(line)
        if "still" in line:
            went_on.set()

    log.progress = RunProgress(say, lambda: 0, None, silence=SOON)
    log.progress.task_began(task("t1", 1))
    log.progress.task_ended(task("t1", 1), TaskStatus.PREPARED)
    with log.progress.committing(ORDERS, 7):
        assert went_on.wait(60)
    assert log.lines[1] == "all 1 task merged; committing lake.shop.orders: 7 merged tasks"
    assert log.lines[2].startswith("still committing lake.shop.orders, for ")


def test_while_tasks_are_merged_a_commit_does_not_say_that_all_are() -> None:
    log = Log()
    with log.progress.committing(ORDERS, 7):
        pass
    assert log.lines == ["committing lake.shop.orders: 7 merged tasks"]


def test_a_task_that_replaced_one_of_the_run_counts_as_its_own() -> None:
    log = Log()
    log.progress.planned([task("t1", 1)])
    newer = task("of a sensor", 1)
    log.progress.task_began(newer)
    log.now += 2
    assert log.progress.task_ended(newer, TaskStatus.PREPARED).startswith("1 of 1 task of this run")
