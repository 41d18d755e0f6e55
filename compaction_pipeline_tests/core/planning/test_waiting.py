"""What a tick does with the waiting tasks of a node when new files come. Sizes and thresholds are those of `test_planner.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import moment_text
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline_tests import strategies
from compaction_pipeline_tests.builders import (
    KB,
    NOW,
    data,
    equality,
    global_equality,
    node,
    planned,
    position,
    properties,
    table_files,
    task,
)

MINOR, MAJOR, FULL = CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL


def small(count: int, seq: int, name: str, day: int = 1) -> list[LiveFile]:
    return [data(f"{name}{day}-{number:02}", 10, seq, day=day) for number in range(count)]


def deletes(count: int, seq: int, name: str = "e", day: int = 1) -> list[LiveFile]:
    return [equality(f"{name}{day}-{number:02}", seq, day=day) for number in range(count)]


def queued(files: TableFiles, plan: CompactionPlan) -> list[CompactionTask]:
    """The tasks of a plan of these files, as they have waited in the queue for a day."""
    created_at = NOW - timedelta(days=1)
    return [
        task(f"t{number}", work=work, sequence_number=files.sequence_number, created_at=created_at)
        for number, work in enumerate(plan.tasks)
    ]


def held_by(tasks: Sequence[CompactionTask]) -> InUse:
    """What a tick sees while these tasks wait."""
    pending = {file.path: each.task_id for each in tasks for file in each.work.inputs}
    groups = {each.task_id: each.work.group for each in tasks if each.work.group}
    return InUse(pending=pending, pending_groups=groups).keeping(tasks)


def next_tick(
    first: Sequence[LiveFile],
    then: Sequence[LiveFile],
    rules: TableProperties | None = None,
    request: PlanRequest | None = None,
    history: NodeHistory | None = None,
) -> CompactionPlan:
    """Plan a table of the files `first`, and plan it again with the files `then` while the tasks of the first plan wait."""
    tasks = queued(before := table_files(*first), planned(before, rules=rules, history=history))
    assert tasks
    return planned(table_files(*then), request, rules=rules, in_use=held_by(tasks), history=history)


UPSERTED = [*small(12, 1, "f"), *deletes(12, 2)]
"""Files of a table that is upserted: each commit brings data files and equality deletes. A MINOR is due."""


def test_new_files_that_are_not_due_alone_leave_the_waiting_task_as_it_is() -> None:
    new = [*small(11, 3, "g"), *deletes(11, 4, "n")]
    plan = next_tick(UPSERTED, [*UPSERTED, *new])
    assert (plan.tasks, plan.replaces) == ((), ())
    [verdict] = plan.verdicts
    assert (verdict.type, verdict.reason.code) == (None, PlanReasonCode.FILES_IN_USE)
    assert verdict.reason.text == (
        "12 of 23 data files are in running or waiting tasks; for the others: 11 small data files of 12 needed; 110 kB of 1.0 MB; "
        "11 small delete files of 12; 11.0 kB"
    )


@pytest.mark.parametrize("new", [small(12, 3, "g"), [*small(1, 3, "g"), *deletes(12, 4, "n")]])
def test_new_files_that_are_due_alone_go_into_one_task_with_the_waiting_ones(new: list[LiveFile]) -> None:
    plan = next_tick(UPSERTED, [*UPSERTED, *new])
    [work] = plan.tasks
    assert len(work.inputs) == 12 + sum(1 for file in new if file.is_data)
    assert plan.replaces == ("t0",)


def test_global_deletes_that_the_waiting_task_applies_do_not_replace_it() -> None:
    first = [*small(12, 1, "f"), *(global_equality(f"g{number:02}") for number in range(12))]
    assert next_tick(first, [*first, *small(3, 3, "g")]).replaces == ()
    assert next_tick(first, [*first, *small(1, 3, "g"), *(global_equality(f"h{n:02}", 4) for n in range(12))]).replaces == ("t0",)


DUE = small(12, 3, "g")
"""New files that make a MINOR due by themselves."""


@pytest.mark.parametrize(("seconds", "replaced"), [(0, ()), (299, ()), (300, ("t0",)), (3_000, ("t0",))])
def test_waiting_tasks_are_replaced_at_most_once_in_the_least_interval_between_plans(seconds: int, replaced: tuple[str, ...]) -> None:
    rules = properties(min_plan_interval=timedelta(minutes=5))
    [waiting] = queued(before := table_files(*UPSERTED), planned(before, rules=rules))
    waiting = replace(waiting, created_at=NOW - timedelta(seconds=seconds))
    plan = planned(table_files(*UPSERTED, *DUE), rules=rules, in_use=held_by([waiting]))
    assert plan.replaces == replaced
    if not replaced:
        assert plan.tasks == ()
        [verdict] = plan.verdicts
        at, again = waiting.created_at, waiting.created_at + timedelta(minutes=5)
        assert verdict.reason.text.endswith(
            f"for the others: the waiting tasks were planned at {moment_text(at, NOW)}; they may be replaced from {moment_text(again, NOW)}"
        )


def test_a_task_that_cannot_be_committed_is_replaced_however_young_it_is() -> None:
    rules = properties(min_plan_interval=timedelta(minutes=5))
    [waiting] = queued(before := table_files(*UPSERTED), planned(before, rules=rules))
    waiting = replace(waiting, created_at=NOW)
    assert planned(table_files(*UPSERTED[1:], *small(1, 3, "g")), rules=rules, in_use=held_by([waiting])).replaces == ("t0",)


def test_a_task_that_cannot_grow_stays_and_new_files_that_are_due_get_one_of_their_own() -> None:
    rules = properties(max_task_size_bytes=120 * KB)
    [waiting] = queued(before := table_files(*UPSERTED), planned(before, rules=rules))
    assert waiting.work.input_bytes == 120 * KB
    new = [*DUE, *deletes(12, 4, "n")]
    plan = planned(table_files(*UPSERTED, *new), rules=rules, in_use=held_by([waiting]))
    assert plan.replaces == ()
    [work] = plan.tasks
    assert {file.path for file in work.inputs} == {file.path for file in DUE}
    # The next new files are compared with both tasks, and are not due.
    more = task("t1", work=work, sequence_number=4, created_at=waiting.created_at)
    after = planned(table_files(*UPSERTED, *new, *small(3, 5, "h")), rules=rules, in_use=held_by([waiting, more]))
    assert (after.tasks, after.replaces) == ((), ())
    # When they are due, only the task that can grow takes them.
    rules = replace(rules, max_task_size_bytes=121 * KB)
    larger = replace(waiting, work=replace(waiting.work, inputs=(*waiting.work.inputs, data("x", 10, 1))))
    last = planned(table_files(*UPSERTED, data("x", 10, 1), *new, *small(12, 5, "h")), rules=rules, in_use=held_by([larger, more]))
    assert last.replaces == ("t1",)
    assert not {file.path for work in last.tasks for file in work.inputs} & {file.path for file in larger.work.inputs}


def test_an_invalid_task_is_replaced_although_it_cannot_grow() -> None:
    rules = properties(max_task_size_bytes=120 * KB)
    [waiting] = queued(before := table_files(*UPSERTED), planned(before, rules=rules))
    gone = table_files(*UPSERTED[1:], *small(1, 3, "g"))
    assert planned(gone, rules=rules, in_use=held_by([waiting])).replaces == ("t0",)


def test_a_full_takes_the_files_of_tasks_that_cannot_grow() -> None:
    rules = properties(max_task_size_bytes=120 * KB, full_interval=timedelta(hours=1))
    tasks = queued(before := table_files(*UPSERTED), planned(before, rules=replace(rules, full_interval=None)))
    due = NodeHistory(first_seen={node(): NOW - timedelta(hours=2)})
    assert planned(table_files(*UPSERTED, *DUE), rules=rules, in_use=held_by(tasks), history=due).replaces == ("t0",)


def test_the_interval_does_not_replace_the_task_that_it_asked_for() -> None:
    history = NodeHistory(first_seen={node(): NOW - timedelta(hours=2)})
    first = small(2, 1, "f")
    assert next_tick(first, [*first, *small(3, 2, "g")], history=history).replaces == ()


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(UPSERTED[1:], id="an input is gone"),
        pytest.param([replace(UPSERTED[0], data_sequence_number=2), *UPSERTED[1:]], id="an input was added again"),
        pytest.param([*UPSERTED, position("p", 3, of=UPSERTED[0].path)], id="a position delete came to an input"),
        pytest.param([*UPSERTED[:-1], equality("other", 2)], id="a delete that the task applies is gone"),
    ],
)
def test_a_waiting_task_that_could_not_be_committed_is_replaced_with_the_first_new_file(then: list[LiveFile]) -> None:
    plan = next_tick(UPSERTED, [*then, *small(1, 3, "g")])
    assert plan.replaces == ("t0",)
    assert {file.path for file in then if file.is_data} < {file.path for work in plan.tasks for file in work.inputs}


WORN = [data("worn", 500, 1), position("p", 2, of="worn", rows=50)]
"""A large file of 100 rows, of which 50 are deleted: a MAJOR is due."""


def test_a_waiting_minor_is_replaced_when_a_major_becomes_due() -> None:
    first = small(12, 1, "f")
    plan = next_tick([*first, WORN[0]], [*first, *WORN, *small(1, 3, "g")])
    assert {work.type for work in plan.tasks} == {MAJOR}
    assert plan.replaces == ("t0",)


def test_a_waiting_major_is_replaced_only_for_new_files_that_are_due_themselves() -> None:
    assert next_tick(WORN, [*WORN, *small(5, 3, "g")]).replaces == ()
    again = [data("also", 500, 3), position("q", 4, of="also", rows=50)]
    assert next_tick(WORN, [*WORN, *again]).replaces == ("t0",)
    # Two undersized files can be joined. They are due for a MAJOR without the file that waits.
    assert next_tick(WORN, [*WORN, data("u", 300, 3), data("v", 300, 3)]).replaces == ("t0",)


def test_a_full_that_is_due_replaces_a_waiting_minor_and_no_waiting_full() -> None:
    first, new = small(12, 1, "f"), small(1, 3, "g")
    rules = properties(full_interval=timedelta(hours=1))
    due = NodeHistory(first_seen={node(): NOW - timedelta(hours=2)})
    assert next_tick(first, [*first, *new], rules, history=due).replaces == ()
    minor = held_by(queued(table_files(*first), planned(table_files(*first))))
    plan = planned(table_files(*first, *new), rules=rules, in_use=minor, history=due)
    assert [work.type for work in plan.tasks] == [FULL]
    assert plan.replaces == ("t0",)


def test_a_person_who_forces_work_gets_all_files_in_one_task() -> None:
    [work] = next_tick(UPSERTED, [*UPSERTED, *small(1, 3, "g")], request=PlanRequest((MINOR,), force=True)).tasks
    assert len(work.inputs) == 13


def test_tasks_of_a_group_are_kept_or_replaced_together() -> None:
    large = [data("l1", 800, 1, day=1), data("l2", 800, 1, day=2)]
    first = [*large, *small(12, 1, "f", 1), *small(12, 1, "f", 2), *(global_equality(f"e{n:02}", 2) for n in range(12))]
    before = planned(table_files(*first))
    tasks = queued(table_files(*first), before)
    [group] = {work.group for work in before.tasks}
    assert group
    assert {work.action for work in before.tasks} == {TaskAction.MERGE, TaskAction.CONVERT}
    assert planned(table_files(*first, *small(1, 3, "g", 1), *small(1, 3, "g", 2)), in_use=held_by(tasks)).replaces == ()
    # The first partition is due again, and the second one has a single new file. All tasks of the group go, so both are planned anew.
    plan = planned(table_files(*first, *small(12, 3, "g", 1), *small(1, 3, "g", 2)), in_use=held_by(tasks))
    assert set(plan.replaces) == {each.task_id for each in tasks}
    planned_now = {file.path for work in plan.tasks for file in work.inputs}
    assert planned_now >= {file.path for each in tasks for file in each.work.inputs}


def test_only_tasks_that_nobody_has_begun_are_kept() -> None:
    waiting = task("t1")
    begun = replace(waiting, status=TaskStatus.EXECUTING)
    seen = InUse(pending={file.path: waiting.task_id for file in waiting.work.inputs})
    assert seen.keeping([waiting]).waiting == {node(): (waiting,)}
    assert seen.keeping([begun]).waiting == InUse().keeping([waiting]).waiting == {}
    # A launch of a person is no longer among the Pending tasks that a tick may replace.
    assert seen.without_replacing([waiting.task_id]).keeping([waiting]).waiting == {}


@given(strategies.live_files(), strategies.table_properties())
def test_a_table_without_new_files_keeps_all_its_waiting_tasks(files: TableFiles, rules: TableProperties) -> None:
    tasks = queued(files, planned(files, rules=rules))
    assert planned(files, rules=rules, in_use=held_by(tasks)).replaces == ()
