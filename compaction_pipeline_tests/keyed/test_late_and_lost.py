"""Changes that land late, sequences that get lost, and columns that hide: a compaction never makes a reader see other rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.compacted import Compacted, expire
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import bag_difference


@pytest.fixture
def log(tmp_path: Path) -> Compacted:
    return Compacted(tmp_path)


# ---- late


@pytest.mark.parametrize("how", ["timeout", "expired"])
def test_a_change_that_lands_late_after_the_plan_is_not_passed_over(log: Compacted, how: str) -> None:
    log.insert(row(1), row(2))
    log.compactions.compact()
    if how == "timeout":
        with log.base.refresh().transaction() as base:
            base.set_properties({"compaction.transaction.timeout": "1"})
    transaction = log.begin()
    begin = log.change.refresh().current_snapshot()
    assert begin is not None
    log.insert(row(3))
    if how == "expired":
        expire(log.change, begin.snapshot_id)
    tasks = log.compactions.merge(log.compactions.plan())
    assert tasks
    log.commit(log.changes(1, "ED", transaction, [(row(1), 1)]))
    log.check([row(2), row(3)])
    outcome = log.compactions.commit(tasks)
    assert outcome.state is CommitState.NOTHING
    assert "has landed, and the commit would pass it over" in next(iter(outcome.conflicts.values()))
    log.check([row(2), row(3)])
    # The next plan sees the late change, and merges it.
    assert log.compactions.compact() is not None
    log.check([row(2), row(3)])


def test_the_reason_of_a_node_tells_late_changes_and_the_node_is_due_all_the_same(log: Compacted, tmp_path: Path) -> None:
    log.insert(row(1), row(2))
    first = log.sequence
    log.compactions.compact()
    services = OpenedServices(Settings(home=tmp_path / "home", merge_engine="in-process"))
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"}
    services.stores.catalogs.add(CatalogEntry("lake", sql))
    table = TableIdentifier("lake", ("db",), "t")

    def plan() -> list[tuple[HealthStatus, str]]:
        services.one_table.refresh(table)
        services.plan_tables.plan(table, PlanRequest(types=(CompactionType.FULL,), force=True), unlimited=True)
        return [(node.health, node.reason) for node in services.read_tables.table(table).nodes]

    log.insert(row(3))
    assert not any("LATE_TRANSACTION" in reason for _, reason in plan())
    log.commit(log.changes(1, "I", first, [(row(4), 7), (row(5), 8)]))
    found = plan()
    assert found
    assert all(
        health is HealthStatus.DUE and "LATE_TRANSACTION: 1 change file with 2 rows landed after" in reason for health, reason in found
    )


# ---- lost


def test_a_commit_is_refused_when_the_sequences_got_lost_after_the_plan(log: Compacted) -> None:
    log.insert(row(1))
    first, second = (log.compactions.merge(log.compactions.plan()) for _ in range(2))
    assert log.compactions.commit(first).state is CommitState.COMMITTED
    log.lose_sequences()
    with pytest.raises(TableRefused, match=r"no snapshot of the base store says 'optimized-sequence\.exist'"):
        log.compactions.commit(second)
    with pytest.raises(TableRefused, match="no snapshot of the base store says"):
        log.compactions.plan()


def test_a_scan_is_refused_when_another_program_has_expired_the_sequences(log: Compacted) -> None:
    """PyIceberg drops the statistics of the snapshots that it expires, and forgets who their children's parents were."""
    log.insert(row(1), row(2))
    log.compactions.compact()
    log.check([row(1), row(2)])
    merged = log.end_of_base()
    log.base.append(pa.Table.from_pylist([row(9)], schema=log.base.schema().as_arrow()))
    log.check([row(1), row(2), row(9)])
    log.base.maintenance.expire_snapshots().by_id(merged).commit()
    assert log.base.refresh().metadata.statistics == []
    with pytest.raises(TableRefused, match="which changes are already in the base store is unknown, and they could appear twice"):
        KeyedTable.open(log.catalog, "db.t").scan().to_arrow()


def test_a_base_store_of_other_programs_whose_history_is_cut_off_is_read_and_not_planned(log: Compacted) -> None:
    for number in (1, 2):
        log.commit_base(log.base_rows(1, 0, [row(number)], name=f"other-{number}"))
        if number == 1:
            first = log.end_of_base()
    log.base.refresh().maintenance.expire_snapshots().by_id(first).commit()
    log.insert(row(3))
    log.check([row(1), row(2), row(3)])
    with pytest.raises(TableRefused, match="older snapshots, which may have said so, are expired"):
        log.compactions.plan()


def test_the_property_of_old_versions_goes_with_the_first_commit(log: Compacted) -> None:
    log.insert(row(1))
    log.commit_base(log.base_rows(1, 1, [row(1)]))
    with log.base.refresh().transaction() as base:
        base.set_properties({"table.partition-properties": '{"":{"max-txId":"1","base-op-time":"1"}}'})
    log.insert(row(2))
    log.check([row(1), row(2)])
    assert log.compactions.compact() is not None
    log.check([row(1), row(2)])
    assert "table.partition-properties" not in log.base.refresh().properties
    log.lose_sequences()
    with pytest.raises(TableRefused, match="they could appear twice"):
        log.compactions.plan()


def test_an_outdated_property_of_old_versions_does_not_count(log: Compacted) -> None:
    log.insert(row(1))
    log.insert(row(2))
    log.commit_base(log.base_rows(1, 2, [row(1), row(2)]))
    with log.base.refresh().transaction() as base:
        base.set_properties({"table.partition-properties": '{"":{"max-txId":"1"}}'})
    with pytest.raises(TableRefused, match="has changes of transaction 2, and the property of old versions has a lower number"):
        log.compactions.plan()


# ---- hidden columns


@pytest.mark.parametrize("how", ["append", "expired", "overwrite"])
def test_a_file_with_the_transaction_of_each_row_and_no_bounds_is_opened(log: Compacted, how: str) -> None:
    for number in range(2):
        log.insert(row(number))
    log.begin()
    several = log.changes(1, "I", 0, [(row(5), 1, 2), (row(6), 1, 4)])
    log.commit(several, operation=Operation.APPEND if how == "append" else Operation.OVERWRITE)
    snapshot = log.change.refresh().current_snapshot()
    assert snapshot is not None
    log.insert(row(7))
    if how == "expired":
        expire(log.change, snapshot.snapshot_id)
    expected = [row(0), row(1), row(5), row(6), row(7)]
    # The reader of Amoro's rules knows no such files.
    assert bag_difference(log.scanned(), expected) == ""
    log.compactions.compact()
    assert bag_difference(log.scanned(), expected) == ""


def test_a_late_change_file_that_an_overwrite_added_holds_t_back(log: Compacted) -> None:
    log.insert(row(1))
    log.compactions.compact()
    transaction = log.begin()
    log.insert(row(2))
    log.insert(row(3))
    log.commit(log.changes(1, "ED", transaction, [(row(1), 1)]), operation=Operation.OVERWRITE)
    log.check([row(2), row(3)])
    log.compactions.compact()
    log.check([row(2), row(3)])


def test_stores_whose_columns_have_each_other_s_ids_are_not_merged(log: Compacted) -> None:
    for store, names in ((log.base, "ab"), (log.change, "ba")):
        with store.update_schema() as schema:
            for name in names:
                schema.add_column(name, StringType())
        store.refresh()
    log.commit(log.changes(1, "I", 0, [({**row(1), "a": "A", "b": "B"}, 1)]))
    with pytest.raises(TableRefused, match=r"column id 5 is 'a' \(string\) in the base store and 'b' \(string\) in the change store"):
        log.compactions.plan()
