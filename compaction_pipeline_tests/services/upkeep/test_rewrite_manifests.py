"""The manifests of one table are rewritten under the lease of commits, or a sentence says why they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import NotFoundError, StorageUnavailable
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan
from compaction_pipeline.core.upkeep.manifests_outcome import ManifestsOutcome
from compaction_pipeline.iceberg.upkeep.rewrite_manifests import IcebergManifestRewriter
from compaction_pipeline.services.upkeep.rewrite_manifests import RewriteManifests
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


def use_case(house: House, on_step: Callable[[str], None] = lambda step: None) -> RewriteManifests:
    services = house.services
    rewriter = IcebergManifestRewriter(services.catalogs, on_step=on_step, sleep=lambda seconds: None)
    return RewriteManifests(services.stores.catalogs, services._why_not_change, services._leases, rewriter, lambda: "rewrite-1")


def refused(house: House, table: LakeTable) -> str:
    """The sentence of a refusal. The table is as it was then."""
    head = table.table.refresh().metadata_location
    answer = use_case(house).rewrite(table.identifier)
    assert isinstance(answer, str)
    assert use_case(house).look(table.identifier) == answer, "a dry run refuses the same"
    assert table.table.refresh().metadata_location == head
    return answer


def test_manifests_are_rewritten_and_the_lease_is_free_again(house: House) -> None:
    table = scattered(house)
    found = use_case(house).look(table.identifier)
    assert isinstance(found, ManifestPlan)
    assert len(found.rewritten) == 4
    for state in (CommitState.COMMITTED, CommitState.COMMITTED):
        answer = use_case(house).rewrite(table.identifier)
        assert isinstance(answer, ManifestsOutcome)
        assert (answer.state, answer.figures.replaced, answer.figures.created) == (state, 4, 1)
    assert table.live_ids() == [0, 1, 2, 3]
    assert house.services.stores.leases.holder(f"commit:{table.identifier}", house.now) is None


def test_the_lease_of_commits_is_held_while_manifests_are_rewritten(house: House) -> None:
    table = scattered(house)
    steps = []

    def second(step: str) -> None:
        if step == "before-swap":
            with pytest.raises(StorageUnavailable, match=f"is committing {table.identifier} .its lease ends at "):
                use_case(house).rewrite(table.identifier)
            steps.append(step)

    assert isinstance(use_case(house, second).rewrite(table.identifier), ManifestsOutcome)
    assert steps == ["before-swap"]


def test_a_paused_table_is_left_alone(house: House) -> None:
    table = scattered(house)
    house.services.explore_catalogs.pause(table.identifier)
    assert refused(house, table) == (
        "the manifests of lake.db.t are not rewritten: a person paused it; `compaction-pipeline resume lake.db.t` ends this"
    )


def test_a_table_of_an_observed_catalog_is_left_alone(tmp_path: Path) -> None:
    house = House(tmp_path, observe=True)
    table = scattered(house)
    assert refused(house, table) == (
        "the manifests of lake.db.t are not rewritten: catalog lake is only observed: remove it and add it "
        "without --observe to let its tables be changed"
    )
    house.services.close()


def test_a_refused_table_is_left_alone_whether_the_state_knows_it_or_not(house: House) -> None:
    table = scattered(house)
    with table.table.refresh().transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    unread = refused(house, table)
    house.services.refresh_files.refresh(table.identifier)
    for answer in (unread, refused(house, table)):
        assert answer.startswith("the manifests of ")
        assert "not rewritten: 'encryption.key-id' is 'k'" in answer


def test_a_property_that_breaks_its_rule_is_named(house: House) -> None:
    table = scattered(house)
    with table.table.refresh().transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": "8 MB"})
    assert "'commit.manifest.target-size-bytes' is '8 MB' but must be ≥ 1" in refused(house, table)
    assert "'commit.manifest.target-size-bytes' is '8 MB'" in str(use_case(house).look(table.identifier))


@pytest.mark.parametrize("status", [RecordStatus.OPEN, RecordStatus.UNKNOWN])
def test_a_commit_of_ours_that_has_not_ended_comes_first(house: House, status: RecordStatus) -> None:
    table = scattered(house)
    house.services.stores.records.save(CompactionRecord("r1", table.identifier, status, house.now, ()))
    assert "not rewritten: commit r1 may still land; the next tick, or `compaction-pipeline compact lake.db.t`" in refused(house, table)


def test_an_unknown_table_is_not_found(house: House) -> None:
    with pytest.raises(NotFoundError):
        use_case(house).rewrite(TableIdentifier("lake", ("db",), "none"))


def test_both_stores_of_a_keyed_table_keep_their_manifests(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for table, said in ((TABLE, "a store of a keyed"), (CHANGE_STORE, "the change store of a keyed")):
        for answer in (program.services.rewrite_manifests.look(table), program.services.rewrite_manifests.rewrite(table)):
            assert isinstance(answer, str)
            assert f"the manifests of table {table} are not rewritten: " in answer
            assert said in answer
    program.services.close()
