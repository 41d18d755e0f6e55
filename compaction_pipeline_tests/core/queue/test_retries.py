"""A task goes back into the queue only when all of its data files are still live."""

from __future__ import annotations

from compaction_pipeline.core.queue.retries import Retries, retries
from compaction_pipeline_tests.behaviours.example_tasks import example


def test_a_task_with_a_file_that_is_gone_is_outdated() -> None:
    tasks = [example("whole", files=("1", "2")), example("gone", files=("3", "4")), example("none", files=("5", "6"))]
    assert retries(tasks, {"1", "2", "3", "9"}) == Retries(("whole",), ("gone", "none"))
    assert retries([], {"1"}) == Retries((), ())


def test_delete_files_of_a_task_may_be_gone() -> None:
    task = example("t", files=("1",))
    assert task.work.deletes
    assert retries([task], {"1"}).put_back == ("t",)
