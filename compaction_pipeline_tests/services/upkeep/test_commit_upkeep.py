"""A work of upkeep that commits is done under the lease of commits, with a record of it, or a sentence says why it is not done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline.services.upkeep.commit_upkeep import CommitUpkeep, StoreDone
from compaction_pipeline.services.upkeep.why_not_commit import WhyNotCommit
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, TABLE, Program
from compaction_pipeline_tests.services.house import House


def scattered(house: House) -> LakeTable:
    """A table of four small manifests, which the state database knows."""
    table = house.lake.table(properties={"commit.manifest.min-count-to-merge": "3"})
    for number in range(4):
        table.ids(number)
    house.services.explore_catalogs.explore()
    house.services.refresh_files.refresh(table.identifier)
    return table


def use_case(house: House, on_step: Callable[[str], None] = lambda step: None) -> CommitUpkeep:
    services, stores = house.services, house.services.stores
    why_not = WhyNotCommit(services._snapshot_stores, stores.upkeep, services._why_not_change, services._other_tables)
    committer = IcebergUpkeepCommitter(services.catalogs, services.clock, on_step=on_step, sleep=lambda seconds: None)
    return CommitUpkeep(stores.catalogs, why_not, services._leases, committer, stores.upkeep, lambda: next(_ids), services.late)


_ids = (f"upkeep-{number}" for number in range(1_000_000))


def look(house: House, table: TableIdentifier) -> StoreDone:
    (done,) = use_case(house).look(table, UpkeepWork.MANIFESTS)
    return done


def rewrite(house: House, table: TableIdentifier, on_step: Callable[[str], None] = lambda step: None) -> StoreDone:
    (done,) = use_case(house, on_step).carry_out(table, UpkeepWork.MANIFESTS)
    return done


def refused(house: House, table: LakeTable) -> str:
    """The sentence of a refusal. The table is as it was then."""
    head = table.table.refresh().metadata_location
    done = rewrite(house, table.identifier)
    answer = done.refusal
    assert answer is not None
    assert look(house, table.identifier) == done, "a dry run refuses the same"
    assert table.table.refresh().metadata_location == head
    return answer


def test_a_work_is_done_with_a_record_and_the_lease_is_free_again(house: House) -> None:
    table = scattered(house)
    plan = look(house, table.identifier).plan
    assert plan is not None
    assert plan.figures["manifests_rewritten"] == 4
    done = rewrite(house, table.identifier)
    assert done.outcome is not None
    assert (done.outcome.state, done.outcome.figures["manifests_after"]) == (CommitState.COMMITTED, 1)
    assert table.live_ids() == [0, 1, 2, 3]
    assert house.services.stores.leases.holder(f"commit:{table.identifier}", house.now) is None
    (record,) = house.services.stores.upkeep.commits(table.identifier)
    assert (record, record.status, record.snapshot_id) == (done.record, UpkeepStatus.DONE, done.outcome.snapshot_after)


def test_a_work_that_finds_nothing_to_do_leaves_no_record(house: House) -> None:
    table = scattered(house)
    rewrite(house, table.identifier)
    again = rewrite(house, table.identifier)
    assert again.outcome is not None
    assert (again.outcome.state, again.record) == (CommitState.NOTHING, None)
    assert len(house.services.stores.upkeep.commits()) == 1


def test_the_lease_of_commits_is_held_while_a_work_is_done_and_its_record_is_open(house: House) -> None:
    table = scattered(house)
    steps = []

    def second(step: str) -> None:
        if step == "before-swap":
            with pytest.raises(StorageUnavailable, match=f"is committing {table.identifier} .its lease ends at "):
                rewrite(house, table.identifier)
            (record,) = house.services.stores.upkeep.commits(under_way=True)
            assert record.status is UpkeepStatus.OPEN
            steps.append(step)

    assert rewrite(house, table.identifier, second).outcome is not None
    assert steps == ["before-swap"]


def test_a_work_that_fails_says_so_in_its_record(house: House) -> None:
    table = scattered(house)

    def broken(step: str) -> None:
        if step == "before-manifest":
            raise StorageUnavailable("the disk is full")

    with pytest.raises(StorageUnavailable, match="the disk is full"):
        rewrite(house, table.identifier, broken)
    (record,) = house.services.stores.upkeep.commits()
    assert (record.status, record.summary) == (UpkeepStatus.FAILED, "the manifests are not rewritten: the disk is full")


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", ["after-validation", "before-manifest-list", "before-swap", "after-swap"])
def test_the_next_run_finds_out_what_became_of_a_work_whose_process_was_killed(house: House, at: str) -> None:
    table = scattered(house)

    def kill(step: str) -> None:
        if step == at:
            raise Killed

    with pytest.raises(Killed):
        rewrite(house, table.identifier, kill)
    rewrite(house, table.identifier)
    landed = at == "after-swap"
    statuses = {record.status for record in house.services.stores.upkeep.commits(table.identifier)}
    assert statuses == ({UpkeepStatus.DONE} if landed else {UpkeepStatus.DONE, UpkeepStatus.FAILED})
    assert table.live_ids() == [0, 1, 2, 3]
    assert house.services.stores.upkeep.commits(table.identifier, under_way=True) == ()


def test_a_paused_table_is_left_alone(house: House) -> None:
    table = scattered(house)
    house.services.explore_catalogs.pause(table.identifier)
    assert refused(house, table) == ("a person paused it; `compaction-pipeline resume lake.db.t` ends this")


def test_a_table_of_an_observed_catalog_is_left_alone(tmp_path: Path) -> None:
    house = House(tmp_path, observe=True)
    table = scattered(house)
    assert refused(house, table) == "catalog lake is only observed: `catalog change lake --no-observe` lets its tables be changed"
    house.services.close()


def test_a_refused_table_is_left_alone_whether_the_state_knows_it_or_not(house: House) -> None:
    table = scattered(house)
    with table.table.refresh().transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    unread = refused(house, table)
    house.services.refresh_files.refresh(table.identifier)
    for answer in (unread, refused(house, table)):
        assert "'encryption.key-id' is 'k'" in answer


def test_a_property_that_breaks_its_rule_is_named(house: House) -> None:
    table = scattered(house)
    with table.table.refresh().transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": "8 MB"})
    assert "'commit.manifest.target-size-bytes' is '8 MB' but must be ≥ 1" in refused(house, table)
    assert "'commit.manifest.target-size-bytes' is '8 MB'" in str(look(house, table.identifier).refusal)


@pytest.mark.parametrize("status", [RecordStatus.OPEN, RecordStatus.UNKNOWN])
def test_a_commit_of_ours_that_has_not_ended_comes_first(house: House, status: RecordStatus) -> None:
    table = scattered(house)
    house.services.stores.records.save(CompactionRecord("r1", table.identifier, status, house.now, ()))
    assert "commit r1 may still land; the next tick, or `compaction-pipeline compact lake.db.t`" in refused(house, table)


def test_an_unknown_table_is_not_found(house: House) -> None:
    with pytest.raises(NotFoundError):
        rewrite(house, TableIdentifier("lake", ("db",), "none"))


def test_both_stores_of_a_keyed_table_keep_their_manifests(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for table, said in ((TABLE, "a store of a keyed"), (CHANGE_STORE, "the change store of a keyed")):
        for verb in (program.services.commit_upkeep.look, program.services.commit_upkeep.carry_out):
            (done,) = verb(table, UpkeepWork.MANIFESTS)
            assert said in str(done.refusal)
    program.services.close()
