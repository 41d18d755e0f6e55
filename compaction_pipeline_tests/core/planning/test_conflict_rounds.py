from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.planning.conflict_rounds import CONFLICT_ROUNDS, Requests, after_conflict, in_rounds, to_plan_again
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import TABLE, node, task

ASKED = {TABLE: PlanRequest((CompactionType.MAJOR,), frozenset({node(1), node(2)}), snapshot_properties={"by": "me"})}


@pytest.mark.parametrize("conflicts", range(CONFLICT_ROUNDS + 3))
def test_each_conflict_gets_a_round_until_no_round_is_left(conflicts: int) -> None:
    seen: list[Requests] = []

    def work(requests: Requests) -> Requests:
        seen.append(requests)
        return {TABLE: after_conflict(requests[TABLE], [node(2)])} if len(seen) <= conflicts else {}

    in_rounds(ASKED, work)
    assert len(seen) == 1 + min(conflicts, CONFLICT_ROUNDS)
    assert seen[0] == ASKED
    again = PlanRequest((CompactionType.MAJOR,), frozenset({node(2)}), True, {"by": "me"})
    assert seen[1:] == [{TABLE: again}] * (len(seen) - 1)


def test_work_without_a_request_is_done_once() -> None:
    seen: list[Requests] = []

    def work(requests: Requests) -> Requests:
        seen.append(requests)
        return {}

    in_rounds({}, work)
    assert seen == [{}]


def of(day: int, status: TaskStatus = TaskStatus.COMMITTED, group: str = "", end: EndReason | None = None) -> CompactionTask:
    """A task that a commit has claimed, unless a newer plan took its files."""
    record = None if end is EndReason.REPLACED else RecordId("r")
    work = replace(task().work, node=node(day), group=group)
    return task(f"t{day}", work=work, status=status, end_reason=end, record_id=record)


def rejected(day: int, group: str = "") -> CompactionTask:
    return of(day, TaskStatus.FAILED, group, EndReason.CONFLICT)


def replaced(day: int) -> CompactionTask:
    return of(day, TaskStatus.CANCELED, end=EndReason.REPLACED)


def test_what_was_committed_is_not_planned_again() -> None:
    assert to_plan_again(ASKED[TABLE], [of(1), of(2)], ()) is None


def test_a_rejected_node_is_planned_again_without_thresholds_and_a_replaced_one_with_them() -> None:
    request = ASKED[TABLE]
    assert to_plan_again(request, [of(1), rejected(2)], ()) == replace(request, nodes=frozenset({node(2)}), force=True)
    assert to_plan_again(request, [of(1), replaced(2)], ()) == replace(request, nodes=frozenset({node(2)}))
    assert to_plan_again(request, [rejected(1), replaced(2)], ()) == replace(request, force=True)


def test_a_task_group_with_a_task_that_failed_for_good_is_not_merged_again() -> None:
    failed = replace(of(2, TaskStatus.FAILED, "g"), record_id=None)
    assert to_plan_again(ASKED[TABLE], [rejected(1, "g"), failed], {TaskId("t2")}) is None
    other = to_plan_again(ASKED[TABLE], [rejected(1, "h"), failed], {TaskId("t2")})
    assert other == replace(ASKED[TABLE], nodes=frozenset({node(1)}), force=True)
