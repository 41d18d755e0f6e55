"""Which waiting task is next. Priority goes first, but waiting makes up for it, so nothing starves."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.order import AGEING, in_place_of, priority_order
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW, data

moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)).map(lambda moment: moment.replace(tzinfo=NOW.tzinfo))


def in_line(*tasks: CompactionTask) -> list[str]:
    def key(task: CompactionTask) -> tuple[int, int, datetime, TaskId]:
        assert task.waiting_since is not None
        return priority_order(task.priority, task.work.small_files, task.waiting_since, task.task_id)

    return [task.task_id for task in sorted(tasks, key=key)]


def test_higher_priority_goes_first_then_more_small_files_then_the_longer_wait_then_the_id() -> None:
    tasks = [
        example("e"),
        example("d"),
        example("c", waiting_since=NOW + timedelta(minutes=1), created_at=NOW - timedelta(days=9)),
        example("b", files=("1", "2", "3")),
        example("a", priority=1),
    ]
    assert in_line(*tasks) == ["a", "b", "d", "e", "c"]


def test_an_hour_of_waiting_makes_up_for_one_step_of_priority() -> None:
    urgent = example("urgent", priority=3)
    assert in_line(urgent, example("old", waiting_since=NOW - 2 * AGEING)) == ["urgent", "old"]
    assert in_line(urgent, example("old", waiting_since=NOW - 4 * AGEING)) == ["old", "urgent"]


@given(priority=st.integers(-100, 100), steps=st.integers(0, 100), since=moments, small=st.integers(0, 1_000))
def test_nothing_starves(priority: int, steps: int, since: datetime, small: int) -> None:
    """No task that comes more than `steps + 1` hours later overtakes, when it has a priority that is `steps` higher."""
    later = since + (steps + 1) * AGEING
    assert priority_order(priority, 0, since, "z") < priority_order(priority + steps, small, later, "a")


@given(first=st.integers(-(2**31), 2**31 - 1), second=st.integers(-(2**31), 2**31 - 1), since=moments)
def test_of_two_that_came_together_the_higher_priority_goes_first(first: int, second: int, since: datetime) -> None:
    before = priority_order(first, 0, since, "a") < priority_order(second, 0, since, "b")
    assert before is (first >= second)


def test_a_delete_file_and_a_small_data_file_count_and_a_large_data_file_does_not() -> None:
    task = example("t", files=("a", "b"))
    assert (task.work.fragment_size_bytes, task.work.small_files) == (10**5, 3)
    assert data("large", kb=101).file_size_bytes > task.work.fragment_size_bytes
    assert example("t", inputs_kb=101).work.small_files == 1


def test_a_new_task_has_waited_since_the_earliest_task_that_it_replaces() -> None:
    hour = timedelta(hours=1)
    replaced = {"1": NOW - hour, "2": NOW - 2 * hour, "3": NOW + hour}
    tasks = [example("both", files=("1", "2", "9")), example("new", files=("8",)), example("later", files=("3",))]
    assert [task.waiting_since for task in in_place_of(replaced, tasks)] == [NOW - 2 * hour, NOW, NOW]
