"""Commits that fail: the pause after them, what the table shows, and what is told when a lost answer is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from compaction_pipeline.core.errors import CommitRefused, CommitStateUnknown, RacesLost
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.model.plan import PlanRequest
from compaction_pipeline.core.model.record import RecordStatus
from compaction_pipeline.core.model.task import CompactionType
from compaction_pipeline.core.ports import CommitOutcome, CommitState
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House

MINOR = PlanRequest(types=(CompactionType.MINOR,), force=True)


def answering(house: House, answer: Callable[..., CommitOutcome]) -> AbstractContextManager[object]:
    return mock.patch.object(house.services.committer, "commit", answer)


def refused(*arguments: object) -> CommitOutcome:
    raise CommitRefused("the catalog refused the commit (HTTP 403: no right)")


def lost(*arguments: object) -> CommitOutcome:
    return CommitOutcome(CommitState.UNKNOWN, reason="the answer got lost", unanswered=True)


def races_lost(*arguments: object) -> CommitOutcome:
    raise RacesLost("another writer was faster 5 times")


def with_prepared(house: House) -> LakeTable:
    table = house.fragmented(files=12)
    services = house.services
    services.compact_tables.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, MINOR)
    services.dispatch_tasks.drain("somebody")
    return table


@pytest.mark.parametrize("answer", [refused, lost])
def test_ticks_leave_a_table_alone_after_a_failed_commit_for_longer_each_time(house: House, answer: Callable[..., CommitOutcome]) -> None:
    table = with_prepared(house)
    calls: list[float] = []
    begin = house.now

    def counted(*arguments: object) -> CommitOutcome:
        calls.append((house.now - begin).total_seconds())
        return answer(*arguments)

    with answering(house, counted):
        for _ in range(36):
            house.services.compact_tables.keep()
            list(house.services.compact_tables.commit_due())
            house.pass_time(5)
    assert calls == [0, 10, 30, 70, 150]
    state = house.services.stores.tables.state(table.identifier)
    assert state.commit_failures == 5


def test_the_table_shows_the_answer_until_a_commit_succeeds(house: House) -> None:
    table = with_prepared(house)
    with answering(house, refused):
        list(house.services.compact_tables.commit_due())
    [shown] = house.services.read_history.tables()
    assert shown.health is HealthStatus.FAILING
    assert "HTTP 403: no right" in shown.reason
    assert "tried again from" in shown.reason
    # A refresh between the two knows nothing of it.
    house.services.compact_tables.refresh(table.identifier)
    [shown] = house.services.read_history.tables()
    assert "HTTP 403" in shown.reason
    house.pass_time(10)
    [record] = house.services.compact_tables.commit_due()
    assert record.status is RecordStatus.COMMITTED
    state = house.services.stores.tables.state(table.identifier)
    assert (state.commit_problem, state.commit_failures, state.commit_retry_at) == (None, 0, None)


def test_a_person_need_not_wait(house: House) -> None:
    table = with_prepared(house)
    with answering(house, refused):
        list(house.services.compact_tables.commit_due())
    done = house.services.compact_tables.compact(table.identifier)
    assert [record.status for record in done.records] == [RecordStatus.COMMITTED]


def test_lost_races_are_no_reason_to_wait(house: House) -> None:
    table = with_prepared(house)
    with answering(house, races_lost):
        list(house.services.compact_tables.commit_due())
    assert house.services.stores.tables.state(table.identifier).commit_retry_at is None
    assert house.services.commit_tables.due() == [table.identifier]


def test_the_command_that_finds_a_lost_answer_tells_that_commit(house: House) -> None:
    table = with_prepared(house)
    commit = house.services.committer.commit

    def landed_then_lost(*arguments: object) -> CommitOutcome:
        commit(*arguments)  # type: ignore[arg-type]
        return lost()

    with answering(house, landed_then_lost):
        unknown = house.services.commit_tables.commit(table.identifier).record
    assert unknown is not None
    done = house.services.compact_tables.compact(table.identifier)
    head = table.head().snapshot_id
    assert [(record.record_id, record.status, record.snapshot_after) for record in done.records] == [
        (unknown.record_id, RecordStatus.COMMITTED, head)
    ]
    assert len(done.committed) == 1


def test_nothing_is_merged_while_a_commit_may_still_land(house: House) -> None:
    table = with_prepared(house)
    with answering(house, lost), mock.patch.object(house.services.committer, "settle", lost):
        house.services.commit_tables.commit(table.identifier)
        with pytest.raises(CommitStateUnknown, match=r"may still land \(the answer got lost\)"):
            house.services.compact_tables.compact(table.identifier)
    assert len(table.files()) == 12


def test_a_record_says_whether_every_request_of_it_was_answered(house: House) -> None:
    table = with_prepared(house)
    with answering(house, lost):
        unknown = house.services.commit_tables.commit(table.identifier).record
    assert unknown is not None
    assert not unknown.answered
    [settled] = house.services.compact_tables.keep(table.identifier).settled
    # Nobody knows what became of its request; that of the next one was answered.
    assert (settled.status, settled.answered) == (RecordStatus.FAILED, False)
    done = house.services.compact_tables.compact(table.identifier)
    assert [(record.status, record.answered) for record in done.records] == [(RecordStatus.COMMITTED, True)]
