"""Failed commits: the pause after them, what the table shows, and what is reported when a lost answer is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import CommitRefused, CommitStateUnknown, RacesLost
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.in_hand import InHand

MINOR = PlanRequest(types=(CompactionType.MINOR,), force=True)


def answering(house: House, answer: Callable[..., CommitOutcome]) -> AbstractContextManager[object]:
    committer: InHand = house.services.committer
    return committer.for_a_while(commit=answer)


def refused(*arguments: object) -> CommitOutcome:
    raise CommitRefused("the catalog refused the commit (HTTP 403: no right)")


def lost(*arguments: object) -> CommitOutcome:
    return CommitOutcome(CommitState.UNKNOWN, reason="the answer got lost", unanswered=True)


def races_lost(*arguments: object) -> CommitOutcome:
    raise RacesLost("another writer was faster 5 times")


def with_prepared(house: House, **properties: str) -> LakeTable:
    table = house.fragmented(files=12, **properties)
    services = house.services
    services.one_table.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, MINOR)
    services.work_on_queue.drain("somebody")
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
            house.services.keep_watch.keep()
            list(house.services.commit_due.commit())
            house.pass_time(5)
    assert calls == [0, 10, 30, 70, 150]
    state = house.services.stores.tables.state(table.identifier)
    assert state.commits.failures == 5


def test_the_table_shows_the_answer_until_a_commit_succeeds(house: House) -> None:
    table = with_prepared(house)
    with answering(house, refused):
        list(house.services.commit_due.commit())
    [shown] = house.services.read_tables.tables()
    assert shown.health is HealthStatus.FAILING
    assert "HTTP 403: no right" in shown.reason
    assert "tried again from" in shown.reason
    # A refresh between the two commits does not clear the problem.
    house.services.one_table.refresh(table.identifier)
    [shown] = house.services.read_tables.tables()
    assert "HTTP 403" in shown.reason
    house.pass_time(10)
    [record] = house.services.commit_due.commit()
    assert record.status is RecordStatus.COMMITTED
    state = house.services.stores.tables.state(table.identifier)
    assert (state.commits.problem, state.commits.failures, state.commits.retry_at) == (None, 0, None)


def test_a_person_need_not_wait(house: House) -> None:
    table = with_prepared(house)
    with answering(house, refused):
        list(house.services.commit_due.commit())
    done = house.services.compact_tables.compact(table.identifier)
    assert [record.status for record in done.records] == [RecordStatus.COMMITTED]


def test_lost_races_are_no_reason_to_wait(house: House) -> None:
    table = with_prepared(house)
    with answering(house, races_lost):
        list(house.services.commit_due.commit())
    assert house.services.stores.tables.state(table.identifier).commits.retry_at is None
    assert house.services.commit_due.due() == [table.identifier]


def test_the_command_that_finds_a_lost_answer_reports_that_commit(house: House) -> None:
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
    with house.services.committer.for_a_while(commit=lost, settle=lost):
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
    [settled] = house.services.commit_tables.settle(table.identifier)
    # The first record's request was never answered. The request of the next record was.
    assert (settled.status, settled.answered) == (RecordStatus.FAILED, False)
    done = house.services.compact_tables.compact(table.identifier)
    assert [(record.status, record.answered) for record in done.records] == [(RecordStatus.COMMITTED, True)]


def test_the_files_of_an_unanswered_commit_stay_for_a_day(house: House) -> None:
    # On format v2 a catalog refuses a snapshot whose sequence number is used already. Format v1 has no sequence numbers.
    table = with_prepared(house, format_version="1")
    late: list[tuple[Any, ...]] = []

    def on_its_way(*arguments: Any) -> Any:
        late.append(arguments)
        raise CommitStateUnknownException("gateway timeout")

    services = house.services
    parent = table.head().snapshot_id
    with mock.patch.object(SqlCatalog, "commit_table", on_its_way):
        services.commit_tables.commit(table.identifier)
    # Another commit changes the table, so that the merge of its files is a conflict now.
    table.table.refresh().delete("id = 0")
    house.pass_time(10)
    services.keep_watch.keep()
    [conflict] = services.commit_due.commit()
    assert conflict.conflicts
    assert not services.stores.records.records(unsettled=True)
    for _ in range(3):
        assert services.maintain_tables.remove_leftovers(table.identifier) == ()
        house.pass_time(7 * 3600)
    # After a rollback the late request is carried out. Every file that it names must still exist.
    assert parent is not None
    table.table.refresh().manage_snapshots().set_current_snapshot(snapshot_id=parent).commit()
    house.pass_time(7 * 3600)
    assert services.maintain_tables.remove_leftovers(table.identifier) == ()
    catalog, _, requirements, updates = late[0]
    catalog.commit_table(table.table.refresh(), requirements, updates)
    assert table.live_ids() == list(range(12))
    assert len(table.files()) == 1


def test_the_files_of_an_unanswered_commit_are_deleted_after_a_day(house: House) -> None:
    table = with_prepared(house)

    def lost_on_its_way(*arguments: Any) -> Any:
        raise CommitStateUnknownException("gateway timeout")

    services = house.services
    with mock.patch.object(SqlCatalog, "commit_table", lost_on_its_way):
        services.commit_tables.commit(table.identifier)
    file = next(iter(table.files()))
    table.delete_positions((file.path, 0))
    house.pass_time(10)
    services.keep_watch.keep()
    [conflict] = services.commit_due.commit()
    assert conflict.conflicts
    assert services.maintain_tables.remove_leftovers(table.identifier) == ()
    house.pass_time(24 * 3600)
    gone = services.maintain_tables.remove_leftovers(table.identifier)
    # The merged file goes, and so do the manifests of the commit and the manifest list. The list goes last.
    assert sorted({path.rsplit(".", 1)[-1] for path in gone}) == ["avro", "parquet"]
    assert "/snap-" in gone[-1]
    assert len(table.live_ids()) == 11
    assert services.maintain_tables.remove_leftovers(table.identifier) == ()


def test_merged_tasks_that_are_not_due_say_what_they_wait_for(house: House) -> None:
    table = with_prepared(house)
    services = house.services
    commits = services.commit_due
    assert commits.held_back() == {}
    with answering(house, refused):
        list(services.commit_due.commit())
    assert "its last commit failed, and the next try is at " in commits.held_back()[table.identifier]
    house.pass_time(10)
    with answering(house, lost):
        list(services.commit_due.commit())
    house.pass_time(60)
    assert commits.held_back()[table.identifier] == "a commit of them has begun, and is not settled yet"


def test_merged_tasks_wait_for_the_interval_and_never_are_due_in_an_observed_catalog(house: House) -> None:
    table = with_prepared(house, **{"self-optimizing.commit.interval": "600000", "self-optimizing.min-plan-interval": "0"})
    services = house.services
    assert len(list(services.commit_due.commit())) == 1
    table.ids(*range(100, 112))
    table.ids(*range(200, 212))
    services.one_table.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, MINOR)
    services.work_on_queue.drain("somebody")
    last = services.stores.tables.state(table.identifier).commits.last_committed_at
    assert last is not None
    until = f"{last + timedelta(minutes=10):%H:%M:%S} UTC"
    assert services.commit_due.held_back() == {table.identifier: f"they wait for 'self-optimizing.commit.interval', which ends at {until}"}
    services.stores.catalogs.replace(replace(services.stores.catalogs.entry("lake"), observe=True))
    assert services.commit_due.held_back() == {table.identifier: "catalog lake is only observed"}


def test_a_record_says_what_its_commit_waited_for(house: House) -> None:
    table = with_prepared(house, **{"self-optimizing.commit.interval": "600000", "self-optimizing.min-plan-interval": "0"})
    services = house.services
    (first,) = services.commit_due.commit()
    assert first.waited == "did not wait"
    table.ids(*range(100, 112))
    services.one_table.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, MINOR)
    house.pass_time(580)
    services.work_on_queue.drain("somebody")
    house.pass_time(25)
    (second,) = services.commit_due.commit()
    until = house.now - timedelta(seconds=5)
    assert second.waited == (
        f"waited 25 s after its first merge: 20 s for 'self-optimizing.commit.interval' until {until:%H:%M:%S} UTC, "
        "5 s for the next look at what is due"
    )


def test_a_record_says_that_somebody_asked_for_its_commit_before_the_interval_ended(house: House) -> None:
    table = with_prepared(house, **{"self-optimizing.commit.interval": "600000", "self-optimizing.min-plan-interval": "0"})
    services = house.services
    list(services.commit_due.commit())
    table.ids(*range(100, 112))
    services.one_table.refresh(table.identifier)
    services.plan_tables.plan(table.identifier, MINOR)
    services.work_on_queue.drain("somebody")
    house.pass_time(60)
    record = services.one_table.commit_now(table.identifier).record
    assert record is not None
    assert record.waited == (
        "waited 1 min after its first merge: 1 min for 'self-optimizing.commit.interval', until it was asked for at once"
    )


def test_a_commit_after_a_refused_one_says_that_it_waited_for_the_pause(house: House) -> None:
    with_prepared(house)
    with answering(house, refused):
        list(house.services.commit_due.commit())
    house.pass_time(12)
    (record,) = house.services.commit_due.commit()
    until = house.now - timedelta(seconds=2)
    assert record.waited == (
        f"waited 12 s after its first merge: 10 s for the pause after a failed commit until {until:%H:%M:%S} UTC, "
        "2 s for the next look at what is due"
    )
