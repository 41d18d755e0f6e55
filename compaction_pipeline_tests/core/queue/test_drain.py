"""What a drain takes next, and when it ends. No store is asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.drain import POLLED_AMONG, Drained, Ends, Lingering, Takes, Wanted
from compaction_pipeline_tests.builders import NOW

MINE = (TaskId("a"), TaskId("b"))
SECOND = timedelta(seconds=1)


def polls(wanted: Wanted) -> list[tuple[str | None, list[str] | None]]:
    return [(queue, None if ids is None else list(ids)) for queue, ids in wanted.polls()]


def test_without_a_choice_any_task_of_any_queue_is_taken() -> None:
    assert polls(Wanted(Takes())) == [(None, None)]


def test_named_tasks_go_first_from_whatever_queue_and_then_the_queues_have_turns() -> None:
    wanted = Wanted(Takes(MINE, queues=lambda: ("x", "y", "z")))
    assert polls(wanted) == [(None, ["a", "b"]), ("x", None), ("y", None), ("z", None)]
    wanted.took(None, MINE)
    assert polls(wanted)[1:] == [("x", None), ("y", None), ("z", None)], "a task that was named takes no queue's turn"
    wanted.took("y", None)
    assert polls(wanted)[1:] == [("z", None), ("x", None), ("y", None)]


def test_a_queue_that_is_gone_had_the_last_turn_of_all() -> None:
    queues: list[str] = ["x", "y"]
    wanted = Wanted(Takes(queues=lambda: queues))
    wanted.took("y", None)
    queues.remove("y")
    assert polls(wanted) == [("x", None)]


def test_only_named_tasks_are_taken_when_nothing_else_is_asked_for() -> None:
    wanted = Wanted(Takes.only(MINE))
    assert polls(wanted) == [(None, ["a", "b"])]
    wanted.ended(MINE[0])
    assert polls(wanted) == [(None, ["b"])]
    assert (wanted.goes_first(MINE[0]), wanted.goes_first(MINE[1])) == (False, True)
    wanted.ended(MINE[1])
    assert polls(wanted) == []


def test_named_tasks_are_left_to_optimizers_while_that_is_said() -> None:
    answers = iter([True, False])
    wanted = Wanted(Takes(MINE, queues=lambda: ("x",), leaves=answers.__next__))
    assert polls(wanted) == [("x", None)]
    assert polls(wanted) == [(None, ["a", "b"]), ("x", None)]


@pytest.mark.parametrize(("tasks", "batches"), [(0, []), (1, [1]), (POLLED_AMONG, [POLLED_AMONG]), (POLLED_AMONG + 1, [POLLED_AMONG, 1])])
def test_one_poll_names_a_thousand_tasks_at_most(tasks: int, batches: Sequence[int]) -> None:
    wanted = Wanted(Takes.only([TaskId(str(number)) for number in range(tasks)]))
    assert [len(ids or ()) for _, ids in wanted.polls()] == batches


def test_a_drain_that_found_nothing_for_as_long_as_it_lingers_is_over() -> None:
    lingering = Lingering(Ends(linger=2 * SECOND))
    assert [lingering.is_over(NOW + each * SECOND, idle=True) for each in range(3)] == [False, False, True]


def test_a_task_in_between_begins_the_time_anew() -> None:
    lingering = Lingering(Ends(linger=2 * SECOND))
    idle = [True, True, False, True, True, True]
    assert [lingering.is_over(NOW + each * SECOND, idle=is_idle) for each, is_idle in enumerate(idle)] == [False] * 5 + [True]


def test_a_drain_does_not_linger_while_it_waits_for_others() -> None:
    waits = iter([True, True, False, False])
    lingering = Lingering(Ends(waits_for=waits.__next__, linger=SECOND))
    assert [lingering.is_over(NOW + each * SECOND, idle=True) for each in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("worked_off", [False, True])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("broken", [False, True])
def test_an_end_waits_for_the_named_tasks_unless_something_broke(worked_off: bool, over: bool, broken: bool) -> None:
    ends = Ends.after(lambda: worked_off, lambda: over, lambda: broken)
    assert ends.until() is (broken or (worked_off and over))
    assert ends.waits_for() is not worked_off


def test_of_two_drains_together_the_later_end_of_a_task_counts() -> None:
    a, b, c = TaskId("a"), TaskId("b"), TaskId("c")
    first = Drained([c], {a: "denied", b: "a file is gone"}, polled=3)
    both = first.then(Drained([b], {}, polled=1))
    assert (both.prepared, both.failed, both.polled) == ([c, b], {a: "denied"}, 4)
    assert both.then(Drained([], {a: "denied again"}, polled=1)).failed == {a: "denied again"}
    assert (first.failed, first.prepared) == ({a: "denied", b: "a file is gone"}, [c]), "a drain that has ended stays as it was"
