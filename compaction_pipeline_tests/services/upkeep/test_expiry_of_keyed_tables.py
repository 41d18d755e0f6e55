"""Expiry of keyed tables: a file of one store may be needed by the other, and a snapshot of the change store may hold back merges."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.keyed.transactions import begun_transactions
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.services.upkeep.expire_snapshots import Expired
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.compacted import Compacted
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, FULL, TABLE
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR
from compaction_pipeline_tests.state import new_home


class Expiring(Compacted):
    """A keyed table whose files a test writes one by one, and the program over it with a clock that only the test moves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = datetime.now(timezone.utc)
        self.services = OpenedServices(Settings(home=new_home(folder / "home"), merge_engine="in-process"), clock=lambda: self.now)
        sql = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.services.stores.catalogs.add(CatalogEntry("lake", sql))

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def compact(self) -> bool:
        self.services.one_table.refresh(TABLE)
        return self.services.compact_tables.compact(TABLE, FULL).committed

    def expire(self) -> Expired:
        return self.services.expire_snapshots.expire(TABLE)

    def removed(self, store: TableIdentifier) -> int:
        """Expire now. Return how many snapshots left this store."""
        (record,) = [one.record for one in self.expire().stores if one.store == store]
        return len(record.removed) if record is not None else 0

    def begun(self) -> list[int]:
        """The transactions whose begin snapshots the change store still has."""
        return [one.transaction_id for one in begun_transactions(self.change.refresh().metadata)]


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Expiring]:
    keyed = Expiring(tmp_path)
    yield keyed
    keyed.services.close()


# ---- transactions that have begun ------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_a_ref", [True, False])
def test_an_open_transaction_keeps_its_begin_snapshot_and_no_row_comes_back(keyed: Expiring, on_a_ref: bool) -> None:
    set_properties(keyed.base, {"compaction.transaction.timeout": str(7 * 86_400_000)})
    keyed.insert(row(1), row(2))
    assert keyed.compact()
    main = keyed.change.refresh().metadata.current_snapshot_id
    assert main is not None
    transaction = keyed.begin()
    if not on_a_ref:
        keyed.change.refresh().manage_snapshots().set_current_snapshot(main).commit()
    keyed.insert(row(3))
    keyed.pass_time(6 * DAY)
    keyed.expire()
    assert keyed.begun() == [transaction]
    keyed.compact()
    # The transaction lands now. It deletes row 1, which would come back had the compaction passed the transaction over.
    keyed.commit(keyed.changes(1, "ED", transaction, [(row(1), 1)]))
    keyed.check([row(2), row(3)])


def test_a_transaction_that_was_given_up_keeps_nothing(keyed: Expiring) -> None:
    set_properties(keyed.base, {"compaction.transaction.timeout": str(7 * 86_400_000)})
    keyed.begin()
    keyed.insert(row(3))
    keyed.pass_time(7 * DAY - HOUR)
    assert keyed.removed(CHANGE_STORE) == 0
    keyed.pass_time(2 * HOUR)
    assert keyed.removed(CHANGE_STORE) == 1
    assert keyed.begun() == []


# ---- consumers -------------------------------------------------------------------------------------------------------


def test_a_consumer_of_the_change_store_keeps_the_changes_that_it_has_not_read_and_nothing_of_the_base_store(keyed: Expiring) -> None:
    for number in range(3):
        keyed.insert(row(number))
        assert keyed.compact()
    every = [one.snapshot_id for one in keyed.change.refresh().metadata.snapshots]
    registered = keyed.services.keep_consumers.set(TABLE, "etl", every[1], days=30)
    assert registered.store == CHANGE_STORE
    keyed.pass_time(9 * DAY)
    (of_base,) = [one.record for one in keyed.expire().stores if one.store == TABLE]
    assert [one.snapshot_id for one in keyed.change.refresh().metadata.snapshots] == every[1:]
    assert of_base is not None
    assert of_base.removed


# ---- watermarks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{"compaction.watermark-keys": "wm.eu"}, {"compaction.watermark-writers": "eu:wm.eu"}])
@pytest.mark.parametrize("order", [("wm.eu", "wm.own"), ("wm.own", "wm.eu")])
def test_what_a_change_store_says_under_a_key_of_the_base_store_or_its_own_stays(
    keyed: Expiring, named: dict[str, str], order: tuple[str, str]
) -> None:
    """Readers of the table look in both stores by the properties of the base store."""
    set_properties(keyed.base, named)
    set_properties(keyed.change, {"compaction.watermark-keys": "wm.own"})
    for summary in ({}, {order[0]: "1"}, {order[1]: "2"}, {}):
        row_delta(keyed.change.refresh(), properties=summary)
    every = [one.snapshot_id for one in keyed.change.refresh().metadata.snapshots]
    keyed.pass_time(9 * DAY)
    assert keyed.removed(CHANGE_STORE) == 1
    assert [one.snapshot_id for one in keyed.change.refresh().metadata.snapshots] == every[1:]


def test_a_change_store_that_is_named_itself_is_refused(keyed: Expiring) -> None:
    """It does not say what the base store's readers need of it."""
    keyed.insert(row(1))
    keyed.insert(row(2))
    keyed.pass_time(9 * DAY)
    (of_change,) = keyed.services.expire_snapshots.expire(CHANGE_STORE).stores
    assert (of_change.expiry, of_change.record) == (None, None)
    assert "name the base store instead" in (of_change.refusal or "")


# ---- programs that take a change store for a plain table --------------------------------------------------------------

_MANIFESTS = {"manifests-created": "1", "manifests-kept": "0", "manifests-replaced": "2"}
"""What Iceberg's rewrite of manifests says in the summary of its snapshot."""


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        (_MANIFESTS, False),
        ({"compaction-pipeline.record-id": "r", "added-data-files": "1", "deleted-data-files": "2"}, False),
        ({"added-data-files": "1", "deleted-data-files": "2"}, True),
        *(
            ({**_MANIFESTS, key: "1"}, True)
            for key in ("added-data-files", "added-delete-files", "deleted-data-files", "removed-delete-files")
        ),
        ({}, True),
    ],
)
def test_a_change_store_is_refused_when_another_program_merged_its_files_and_not_for_its_manifests(
    keyed: Expiring, said: dict[str, str], is_refused: bool
) -> None:
    keyed.insert(row(1))
    transaction = Transaction(keyed.change.refresh())
    transaction.stage(SnapshotChange(Operation.REPLACE, properties=said))
    transaction.commit()
    assert keyed.change.refresh().metadata.snapshots[-1].summary.items() >= said.items()
    keyed.insert(row(2))
    keyed.pass_time(9 * DAY)
    of_change = next(store for store in keyed.expire().stores if store.store == CHANGE_STORE)
    assert ("compacted the change store as a plain table" in (of_change.refusal or "")) == is_refused
    assert (of_change.record is None) == is_refused


# ---- files that others need ------------------------------------------------------------------------------------------


def test_a_change_file_that_the_base_store_names_too_stays(keyed: Expiring) -> None:
    moved, merged = (keyed.changes(1, "I", 0, [(row(number), number)]) for number in (1, 2))
    keyed.commit(moved, merged)
    row_delta(keyed.base.refresh(), [moved])
    keyed.change.refresh().delete("id >= 0")
    keyed.pass_time(9 * DAY)
    assert keyed.removed(CHANGE_STORE) > 0
    keyed.pass_time(2 * HOUR)
    assert {record.status for record in keyed.expire().earlier} == {UpkeepStatus.DONE}
    assert not Path(urlsplit(merged.path).path).exists()
    assert reached(keyed.base) <= files_on_disk(keyed.base) | files_on_disk(keyed.change)


@pytest.mark.parametrize("known", [True, False])
def test_a_keyed_table_that_is_registered_under_a_second_name_loses_no_file(keyed: Expiring, known: bool) -> None:
    keyed.services.explore_catalogs.explore()
    for number in range(3):
        keyed.insert(row(number), row(number + 10))
        assert keyed.compact()
    keyed.catalog.create_namespace("db2")
    for store in (keyed.base, keyed.change):
        keyed.catalog.register_table(f"db2.{store.name()[-1]}", store.refresh().metadata_location)
    if known:
        keyed.services.explore_catalogs.explore()
        keyed.services.refresh_files.refresh(TableIdentifier("lake", ("db2",), "t"))
    files = files_on_disk(keyed.base) | files_on_disk(keyed.change)
    keyed.pass_time(9 * DAY)
    assert keyed.removed(TABLE) > 0
    keyed.pass_time(2 * HOUR)
    earlier = keyed.expire().earlier
    assert {record.store for record in earlier} >= {TABLE}
    for record in earlier:
        assert record.status is UpkeepStatus.REMOVED
        assert "is another registration of this table" in (record.reason or "")
    assert files <= files_on_disk(keyed.base) | files_on_disk(keyed.change)


def set_properties(store: Table, properties: dict[str, str]) -> None:
    with store.refresh().transaction() as transaction:
        transaction.set_properties(properties)
