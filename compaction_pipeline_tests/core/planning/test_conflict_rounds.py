from __future__ import annotations

import pytest

from compaction_pipeline.core.planning.conflict_rounds import CONFLICT_ROUNDS, Requests, after_conflict, in_rounds
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import TABLE, node

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
