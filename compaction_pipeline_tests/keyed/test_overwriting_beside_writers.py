"""Insert-overwrites beside writers that take a transaction first and bring its changes later, as Amoro's writer for Spark does."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from compaction_pipeline.core.errors import RacesLost
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.keyed.overwrites import between, table_of
from compaction_pipeline_tests.keyed.written import BY_REGION
from compaction_pipeline_tests.reference_reader import Row


class Written(ChangeLog):
    """A keyed table whose key 1 was inserted as transaction 1."""

    def __init__(self, folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> None:
        super().__init__(folder, key=("id", "region") if spec.fields else ("id",), spec=spec)
        self._folder = folder
        self.commit(self.changes(1, "I", 0, [(row(1, "eu", "old"), 1)]))

    def upsert(self, transaction: int, number: int = 1, region: str = "eu") -> Row:
        """Land the changes of a transaction that began before: one upsert. Returns the new row."""
        new = row(number, region, f"upserted by {transaction}")
        deleted = self.changes(1, "ED", transaction, [(row(number, region), 1)])
        self.commit(deleted, self.changes(1, "I", transaction, [(new, 2)]))
        return new

    def overwrite(self, v: str) -> int | None:
        return KeyedTable.open(self.catalog, "db.t").insert_overwrite(table_of([{"id": 1, "region": "eu", "v": v}], self.base.schema()))

    def open_transactions(self) -> dict[int, bool]:
        """The open transactions, and whether they may bring changes."""
        stores = load_stores(self.catalog, ("db", "t"))
        base, changes = stores.files()
        now = datetime.now(timezone.utc)
        found = read_open_transactions(stores.change.metadata, stores.base.metadata, changes, base, now)
        return {each.transaction_id: each.brings_changes for each in found}

    def base_files_stored(self) -> int:
        return len(list(self._folder.glob("wh/db/t/**/*.parquet")))


@pytest.fixture
def log(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_an_overwrite_waits_for_a_transaction_that_began_before(log: Written) -> None:
    number = log.begin()
    with pytest.raises(
        RacesLost, match=rf"transaction {number} began at .* and has not ended.*'compaction\.transaction\.timeout' of the base"
    ):
        log.overwrite("new")
    assert log.open_transactions() == {number: True}, "the overwrite has not begun, so it holds back no merge"
    assert log.base_files_stored() == 0
    log.check([row(1, "eu", "old")])
    log.check([log.upsert(number)])
    assert log.overwrite("new") == number + 2
    log.check([row(1, "eu", "new")])


def test_a_transaction_that_begins_just_before_the_overwrite_stops_its_commit(log: Written) -> None:
    between(log.catalog, before=log.begin)
    with pytest.raises(RacesLost, match=r"transaction 2 began at .* nothing was overwritten"):
        log.overwrite("new")
    assert log.base.refresh().current_snapshot() is None
    assert log.base_files_stored() == 0
    assert log.open_transactions() == {2: True, 3: False}
    log.check([log.upsert(2)])
    # The overwrite that failed is open, and brings no changes.
    assert log.overwrite("new") == 5
    log.check([row(1, "eu", "new")])


def test_changes_of_an_earlier_transaction_that_land_meanwhile_are_replaced_too(log: Written) -> None:
    between(log.catalog, lambda: log.upsert(2), before=log.begin)
    assert log.overwrite("new") == 5, "it began again as a transaction after the changes"
    log.check([row(1, "eu", "new")])
    assert log.base_files_stored() == 1


def test_changes_of_an_earlier_transaction_in_another_partition_stay(tmp_path: Path) -> None:
    log = Written(tmp_path, BY_REGION)
    between(log.catalog, lambda: log.upsert(2, region="us"), before=log.begin)
    assert log.overwrite("new") == 3
    log.check([row(1, "eu", "new"), row(1, "us", "upserted by 2")])


def test_changes_of_a_transaction_that_begins_after_the_overwrite_apply_to_it(log: Written) -> None:
    between(log.catalog, log.begin)
    assert log.overwrite("new") == 2
    log.check([row(1, "eu", "new")])
    log.check([log.upsert(3)])


def test_a_transaction_that_was_given_up_holds_no_overwrite_back(log: Written) -> None:
    with log.base.refresh().transaction() as base:
        base.set_properties({"compaction.transaction.timeout": "1"})
    assert log.begin() == 2
    assert log.overwrite("new") == 3
    log.check([row(1, "eu", "new")])
