"""Tables with old snapshots, runs that expire them, and catalogs that tests stand in for, for tests of expiry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.services.upkeep.expire_snapshots import Expired
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import avro_records
from compaction_pipeline_tests.rest_catalog import Call, Fault, RestServer
from compaction_pipeline_tests.services.house import House

DAY = timedelta(days=1).total_seconds()
HOUR = timedelta(hours=1).total_seconds()


def compacted(house: House, **properties: str) -> LakeTable:
    """A table whose 12 small files are merged into one: an append, and the snapshot of the merge."""
    table = house.fragmented("t", 12, **properties)
    assert house.services.compact_tables.compact(table.identifier).committed
    return table


def set_properties(table: LakeTable, **properties: str) -> None:
    """Set properties of a table. A dot is written as two underscores, and a dash as one, as in `House.fragmented`."""
    table.table.refresh()
    with table.table.transaction() as transaction:
        transaction.set_properties({key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()})


def snapshots(table: LakeTable) -> list[Any]:
    """The snapshots of a table as it is now."""
    return list(table.lake.catalogs.load(table.identifier).metadata.snapshots)


def files_of(table: LakeTable, snapshot: Any) -> list[str]:
    """The paths of the files that the manifests of a snapshot name."""
    manifests = [one["manifest_path"] for one in avro_records(table.table, snapshot.manifest_list)]
    return [entry["data_file"]["file_path"] for manifest in manifests for entry in avro_records(table.table, manifest)]


# ---- expiring --------------------------------------------------------------------------------------------------------


def expire(house: House, table: LakeTable, **options: Any) -> Expired:
    return house.services.expire_snapshots.expire(table.identifier, **options)


def expired(house: House, table: LakeTable) -> UpkeepRecord:
    """Expire now. Something must be old."""
    record = expire(house, table).stores[0].record
    assert record is not None
    return record


def gone_on(house: House, table: LakeTable) -> UpkeepRecord:
    """Expire now. One earlier record must be under way, and this is what became of it."""
    (record,) = expire(house, table).earlier
    return record


def finished(house: House, table: LakeTable) -> UpkeepRecord:
    """Expire now, and again when the files may go."""
    assert expired(house, table).status is UpkeepStatus.REMOVED
    house.pass_time(2 * HOUR)
    return gone_on(house, table)


def expire_twice(house: House, table: LakeTable) -> None:
    """Expire a table, and delete the files."""
    for _ in range(2):
        expire(house, table)
        house.pass_time(2 * HOUR)


# ---- catalogs --------------------------------------------------------------------------------------------------------


def denied(path: str) -> None:
    """Refuse to delete a file, in place of the `delete` of a FileIO."""
    raise PermissionError(f"[AccessDenied] {path}")


def set_pointer(table: LakeTable, metadata_location: str) -> None:
    """Let the catalog name this metadata as that of the table, as a catalog does whose database was restored."""
    name = table.identifier.name
    table.lake.catalog.drop_table((table.lake.namespace, name))
    table.table = table.lake.catalog.register_table((table.lake.namespace, name), metadata_location)


def behind_rest(house: House, server: RestServer) -> None:
    house.services.stores.catalogs.replace(CatalogEntry("lake", {"type": "rest", "uri": server.uri}))


def tagging_first(table: LakeTable, snapshot_id: int, *, answered: bool = True) -> Fault:
    """A fault that makes the tag `release` on a snapshot just before the commit is carried out. The answer may get lost."""

    def fault(call: Call) -> None:
        table.table.refresh()
        table.table.manage_snapshots().create_tag(snapshot_id, "release").commit()
        done = call.carry_out()
        call.answer(200, done) if answered else call.answer(500)

    return fault
