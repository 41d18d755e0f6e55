"""`s3.delete-enabled` = false in the catalog or the table lets no file go, whatever FileIO the table has, and says which would go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import DeletionForbidden, RacesLost
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import files_on_disk, reached
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.program import MAJOR, MINOR, TABLE, Program
from compaction_pipeline_tests.rest_catalog import rest_server
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import delete, deleted, local, looked_at, roomy, stray
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR, compacted, expire, expired, gone_on, set_properties
from compaction_pipeline_tests.services.upkeep.test_expiry_of_keyed_tables import Expiring

BAN = "s3.delete-enabled"


class OtherFileIO(PyArrowFileIO):
    """Stands for the FileIO of somebody else, which knows nothing of the ban."""


OTHER_FILE_IO = f"{__name__}.OtherFileIO"


@pytest.fixture(params=[OBJECT_FILE_IO, OTHER_FILE_IO], ids=["our FileIO", "another FileIO"])
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    house = House(tmp_path, properties={**_sql(tmp_path), "py-io-impl": request.param})
    yield house
    house.services.close()


def _sql(folder: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/wh",
        "init_catalog_tables": "true",
        "catalog-name": "lake",
    }


def of_catalog(house: House, value: str, key: str = BAN) -> None:
    """Set the key in the properties with which the catalog is registered."""
    house.services.stores.catalogs.replace(CatalogEntry("lake", {**house.lake.properties, key: value}))


def ban(house: House, table: LakeTable, where: str, value: str = "false") -> None:
    if where == "table":
        set_properties(table, s3__delete_enabled=value)
    else:
        of_catalog(house, value, BAN if where == "catalog" else f"table.{BAN}")


@pytest.mark.parametrize("where", ["table", "catalog", "inherited"])
def test_files_of_an_expiry_wait_for_the_end_of_the_ban(house: House, where: str) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    ban(house, table, where)
    files = files_on_disk(table.table)
    for _ in range(2):
        record = gone_on(house, table)
        assert record.status is UpkeepStatus.REMOVED
        assert f"'{BAN}' of the {'table' if where == 'table' else 'catalog'} is false" in (record.reason or "")
        assert "without that, 14 files would go: " in (record.reason or "")
    assert files_on_disk(table.table) == files
    ban(house, table, where, "true")
    assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)


def test_lakekeepers_default_of_a_warehouse_with_soft_deletion_is_a_ban_over_which_the_registration_wins(tmp_path: Path) -> None:
    """It stands in `defaults` of `GET /v1/config`: `generate_catalog_config` in Lakekeeper's `service/storage/s3.rs`, commit 90892e9."""
    house = House(tmp_path)
    table = compacted(house)
    house.pass_time(6 * DAY)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    files = files_on_disk(table.table)
    with rest_server(house.lake.catalog) as server:
        server.defaults = {BAN: "false"}
        rest = {"type": "rest", "uri": server.uri}
        house.services.stores.catalogs.replace(CatalogEntry("lake", rest))
        record = gone_on(house, table)
        assert f"'{BAN}' of the catalog is false: no file of its tables may be deleted; register the catalog with {BAN}=true" in (
            record.reason or ""
        )
        assert files_on_disk(table.table) == files
        house.services.stores.catalogs.replace(CatalogEntry("lake", {**rest, BAN: "true"}))
        assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)
    house.services.close()


@pytest.mark.parametrize("where", ["table", "catalog"])
def test_a_ban_in_the_middle_of_an_expiry_keeps_the_rest(house: House, where: str) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    stores: Any = house.services._snapshot_stores

    def comes(step: str) -> None:
        if step == "content-deleted":
            ban(house, table, where)

    stores._on_step = comes
    record = gone_on(house, table)
    stores._on_step = lambda step: None
    assert (record.status, record.deleted.content_files, record.deleted.manifests) == (UpkeepStatus.REMOVED, 12, 0)
    assert f"'{BAN}'" in (record.reason or "")
    left = files_on_disk(table.table) - reached(table.table)
    assert left
    gone_on(house, table)
    assert left <= files_on_disk(table.table)
    ban(house, table, where, "true")
    assert gone_on(house, table).status is UpkeepStatus.DONE
    assert files_on_disk(table.table) == reached(table.table)


@pytest.mark.parametrize("where", ["table", "catalog"])
def test_orphan_files_are_looked_for_and_stay(house: House, where: str) -> None:
    table = roomy(house, "t")
    path = stray(table)
    looked_at(house, table)
    ban(house, table, where)
    cleaned = delete(house, table)
    assert (deleted(cleaned), [BAN in refusal for refusal in cleaned.refusals]) == ([], [True])
    assert [file.path for file in house.services.clean_orphans.look(table.identifier).orphans.files] == [path]
    assert local(path).exists()
    ban(house, table, where, "true")
    house.pass_time(DAY)
    assert deleted(delete(house, table)) == [path]


def test_a_ban_between_two_looks_at_orphans_is_seen_before_the_batch(house: House) -> None:
    table = roomy(house, "t")
    path = stray(table)
    looked_at(house, table)
    looker: Any = house.services._files_looker
    looker._on_step = lambda step: of_catalog(house, "false") if step == "files-listed" else None
    cleaned = delete(house, table)
    assert (deleted(cleaned), BAN in str(cleaned.problem), local(path).exists()) == ([], True, True)


@pytest.mark.parametrize("where", ["table", "catalog"])
def test_leftovers_are_named_and_stay(house: House, where: str) -> None:
    table = house.fragmented("t", 3)
    path = f"{table.table.metadata.location}/data/00000-0-left-over.parquet"
    local(path).write_bytes(b"12345")
    ban(house, table, where)
    uuid = str(table.table.metadata.table_uuid)
    with pytest.raises(DeletionForbidden, match=f"'{BAN}' .*; without that, 1 file would go: {path}"):
        house.services.committer.delete_orphans(table.identifier, uuid, [path])
    assert local(path).exists()
    ban(house, table, where, "true")
    assert house.services.committer.delete_orphans(table.identifier, uuid, [path]) == (path,)


def test_a_round_of_upkeep_says_which_leftovers_stay(house: House) -> None:
    table = house.fragmented("t", 12)
    assert house.services.compact_tables.compact(table.identifier).committed
    (task,) = house.services.stores.tasks.tasks(table.identifier)
    path = f"{table.table.metadata.location}/data/{task.task_id}-0-killed.parquet"
    local(path).write_bytes(b"12345")
    ban(house, table, "table")
    house.services.refresh_files.refresh(table.identifier)
    skipped = house.services.maintain_tables.maintain().skipped[table.identifier]
    assert "without that, 1 file would go: " + path in skipped
    ban(house, table, "table", "true")
    assert house.services.maintain_tables.maintain().leftovers == {table.identifier: (path,)}


@pytest.mark.parametrize("when", ["before", "meanwhile", "never"])
def test_a_lost_attempt_to_commit_leaves_its_manifests_only_under_the_ban(house: House, when: str) -> None:
    table = house.fragmented("t", 3, commit__retry__num_retries="0")
    of_catalog(house, str(when != "before").lower())
    catalogs = house.services.catalogs
    catalog: Any = catalogs.catalog("lake")
    carried_out = catalog.commit_table

    def lost(*arguments: Any) -> Any:
        if when == "meanwhile":
            ban(house, table, "table")
        raise CommitFailedException("too late")

    before = files_on_disk(table.table)
    merge = table.merge()
    merged = files_on_disk(table.table) - before
    catalog.commit_table = lost
    committer = IcebergCommitter(catalogs, sleep=lambda seconds: None)
    with pytest.raises(Exception, match="another writer was faster"):
        committer.commit(table.identifier, "record-1", [merge])
    catalog.commit_table = carried_out
    left = {path for path in files_on_disk(table.table) - before - merged if path.endswith(".avro")}
    assert bool(left) is (when != "never")
    assert committer.commit(table.identifier, "record-1", [merge]).state is CommitState.COMMITTED


@pytest.mark.parametrize("banned", [True, False])
def test_pyiceberg_drops_old_metadata_only_without_the_ban(house: House, banned: bool, caplog: pytest.LogCaptureFixture) -> None:
    properties = {"write__metadata__delete_after_commit__enabled": "true", "write__metadata__previous_versions_max": "1"}
    table = house.fragmented("t", 12, **properties)
    of_catalog(house, str(not banned).lower())
    folder = local(f"{table.table.metadata.location}/metadata")
    before = set(folder.glob("*.metadata.json"))
    with caplog.at_level(logging.INFO, logger="compaction_pipeline.iceberg.deletions"):
        assert house.services.compact_tables.compact(table.identifier).committed
    assert (before <= set(folder.glob("*.metadata.json"))) is banned
    assert any("1 file would go" in record.getMessage() for record in caplog.records) is banned


@pytest.mark.parametrize("banned", [True, False])
@pytest.mark.parametrize("where", ["", "change-store."])
@pytest.mark.parametrize("impl", [OBJECT_FILE_IO, OTHER_FILE_IO])
def test_a_failed_attempt_keeps_what_it_wrote_only_under_the_ban(tmp_path: Path, banned: bool, where: str, impl: str) -> None:
    path = f"file://{tmp_path}/data/one.parquet"
    local(path).parent.mkdir()
    files = FileAccess({"py-io-impl": impl, f"{where}{BAN}": str(not banned), f"{where}py-io-impl": impl}, f"file://{tmp_path}")
    with files.output(path) as stream:
        stream.write(b"1")
    files.delete_written()
    assert (local(path).exists(), files.written) == (banned, [])


def test_a_worker_is_told_of_a_ban_of_the_table(house: House) -> None:
    table = house.fragmented("t", 3)
    assert house.services.committer.file_io(table.identifier).get(BAN) is None
    ban(house, table, "table")
    assert house.services.committer.file_io(table.identifier)[BAN] == "false"


@pytest.mark.parametrize("banned_store", ["base", "change"])
def test_what_one_store_of_a_keyed_table_forbids_is_forbidden_in_both(tmp_path: Path, banned_store: str) -> None:
    keyed = Expiring(tmp_path)
    keyed.insert(row(1), row(2))
    assert keyed.compact()
    stores = {"base": keyed.base, "change": keyed.change}
    with stores[banned_store].refresh().transaction() as transaction:
        transaction.set_properties({BAN: "false"})
    looks = keyed.services._snapshot_stores.look(TABLE)
    assert [BAN in (look.keeps_files or "") for look in looks] == [True, True]
    file_io = keyed.services.committer.file_io(TABLE)
    assert (file_io[BAN], file_io.get(f"change-store.{BAN}", file_io[BAN])) == ("false", "false")
    for store in stores.values():
        path = f"{store.metadata.location}/data/00000-0-left-over.parquet"
        local(path).write_bytes(b"12345")
        with pytest.raises(DeletionForbidden):
            keyed.services.committer.delete_orphans(TABLE, str(keyed.base.metadata.table_uuid), [path])
        assert local(path).exists()
    keyed.services.close()


@pytest.mark.parametrize("when", ["before", "meanwhile", "never"])
@pytest.mark.parametrize("banned_store", ["base", "change"])
@pytest.mark.parametrize("type", [MINOR, MAJOR], ids=["in the change store", "in the base store"])
def test_a_lost_attempt_of_a_keyed_table_leaves_its_manifests_whichever_store_forbids_it(
    tmp_path: Path, when: str, banned_store: str, type: PlanRequest
) -> None:
    written = Program(tmp_path, delta_rewrite=True)
    services = written.services
    stores = dict(zip(("base", "change"), written.keyed.stores(), strict=True))
    for _ in range(2):
        written.upsert(row(1))
    for store in stores.values():
        with store.transaction() as transaction:
            transaction.set_properties({"commit.retry.num-retries": "0"})

    def forbid() -> None:
        with stores[banned_store].refresh().transaction() as transaction:
            transaction.set_properties({BAN: "false"})

    if when == "before":
        forbid()
    catalog: Any = services.catalogs.catalog("lake")
    carried_out = catalog.commit_table
    lists = {path for store in stores.values() for path in files_on_disk(store) if path.endswith(".avro")}

    def lost(*arguments: Any) -> Any:
        if when == "meanwhile":
            forbid()
        raise CommitFailedException("too late")

    catalog.commit_table = lost
    services.explore_catalogs.explore()
    services.refresh_files.refresh(TABLE)
    (record,) = services.compact_tables.compact(TABLE, type).records
    catalog.commit_table = carried_out
    assert (record.status, "another writer was faster" in (record.reason or "")) == (RecordStatus.FAILED, True)
    left = {path for store in stores.values() for path in files_on_disk(store) if path.endswith(".avro")} - lists
    assert bool(left) is (when != "never")
    services.close()


@pytest.mark.parametrize("when", ["meanwhile", "never", "unreadable"])
def test_a_lost_attempt_of_upkeep_in_a_change_store_leaves_its_manifests_when_the_base_store_forbids_it(tmp_path: Path, when: str) -> None:
    written = Program(tmp_path)
    services = written.services
    base, change = written.keyed.stores()
    for _ in range(3):
        written.upsert(row(1))
    with change.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    services.explore_catalogs.explore()
    services.refresh_files.refresh(TABLE)
    assert services.compact_tables.compact(TABLE, MAJOR).committed
    # Merged changes are old enough to go, but one stays in their manifest.
    written.upsert(row(2))
    written.now += 30 * timedelta(days=1)
    services.refresh_files.refresh(TABLE)
    catalog: Any = services.catalogs.catalog("lake")
    carried_out, load = catalog.commit_table, catalog.load_table

    def unreadable(name: Any) -> Any:
        if tuple(name) == base.name():
            raise OSError("no answer")
        return load(name)

    def lost(*arguments: Any) -> Any:
        if when == "meanwhile":
            with base.refresh().transaction() as transaction:
                transaction.set_properties({BAN: "false"})
        if when == "unreadable":
            catalog.load_table = unreadable
        raise CommitFailedException("too late")

    before = {path for path in files_on_disk(change) if path.endswith(".avro")}
    catalog.commit_table = lost
    with pytest.raises(RacesLost, match="another writer was faster"):
        services.commit_upkeep.carry_out(TABLE, UpkeepWork.CHANGE_FILES)
    catalog.commit_table, catalog.load_table = carried_out, load
    left = {path for path in files_on_disk(change) if path.endswith(".avro")} - before
    assert bool(left) is (when != "never")
    services.close()


@pytest.mark.parametrize("landed", [True, False])
def test_a_base_store_tells_how_a_commit_ended_when_the_change_store_cannot_be_read(tmp_path: Path, landed: bool) -> None:
    written = Program(tmp_path)
    services = written.services
    base, change = written.keyed.stores()
    for _ in range(2):
        written.upsert(row(1))
    with base.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    catalog: Any = services.catalogs.catalog("lake")
    carried_out, load = catalog.commit_table, catalog.load_table

    def unreadable(name: Any) -> Any:
        if tuple(name) == change.name():
            raise OSError("no answer")
        return load(name)

    def sent_twice(*arguments: Any) -> Any:
        if landed:
            carried_out(*arguments)
        catalog.load_table = unreadable
        raise CommitFailedException("too late")

    services.explore_catalogs.explore()
    services.refresh_files.refresh(TABLE)
    lists = {path for path in files_on_disk(base) if path.endswith(".avro")}
    catalog.commit_table = sent_twice
    (record,) = services.compact_tables.compact(TABLE, MAJOR).records
    catalog.commit_table, catalog.load_table = carried_out, load
    assert record.status is (RecordStatus.COMMITTED if landed else RecordStatus.FAILED)
    # Nobody knows what the change store forbids.
    assert {path for path in files_on_disk(base) if path.endswith(".avro")} > lists
    services.close()


def test_a_value_that_is_not_true_forbids(house: House) -> None:
    table = compacted(house)
    house.pass_time(6 * DAY)
    expire(house, table)
    house.pass_time(2 * HOUR)
    ban(house, table, "table", "yes")
    assert gone_on(house, table).status is UpkeepStatus.REMOVED
