"""Files that Flink has written and not committed stay, as long as a manifest of a checkpoint lists them, and so does the manifest."""

from __future__ import annotations

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.typedef import Record

from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.cleaning import UUID, delete, deleted, local, looked_at, roomy, stray, table
from compaction_pipeline_tests.services.upkeep.expiring import DAY, set_properties

__all__ = ["table"]


def flinks_manifest(table: LakeTable, folder: str, listed: str) -> str:
    """Write a manifest as Flink does at a checkpoint, before it commits the files."""
    path = f"{folder}/{'ab' * 16}-{'cd' * 16}-00000-0-12-00001.avro"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    io: FileIO = table.table.io
    data = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=listed,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=5,
    )
    with write_manifest(2, table.table.spec(), table.table.schema(), io.new_output(path), 1, "null") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=data))
    return path


@pytest.mark.parametrize("where", ["metadata", "elsewhere", "metadata elsewhere"])
def test_files_of_a_manifest_that_flink_has_not_committed_stay(house: House, table: LakeTable, where: str) -> None:
    waiting, other = stray(table, 1), stray(table, 2)
    folder = f"{table.table.metadata.location}/metadata"
    if where != "metadata":
        folder = f"{table.table.metadata.location}-of-flink"
        key = "flink__manifests__location" if where == "elsewhere" else "write__metadata__path"
        set_properties(table, **{key: folder})
    manifest = flinks_manifest(table, folder, waiting)
    looked_at(house, table, 4)
    # It is a streaming writer, so everything is young for a week.
    if where == "metadata":
        assert deleted(delete(house, table)) == []
        looked_at(house, table, 3)
    assert other in deleted(delete(house, table))
    # Nothing but the checkpoint of the job names the manifest, so it stays as long as nobody removes it.
    looked_at(house, table, 9)
    delete(house, table, accept_share=1.0)
    assert local(waiting).exists()
    # The job has committed or given up: the manifest is gone.
    local(manifest).unlink()
    looked_at(house, table, 1)
    assert waiting in deleted(delete(house, table))


def test_files_of_a_manifest_of_flinks_dynamic_sink_stay(house: House, table: LakeTable) -> None:
    waiting = stray(table, 1)
    manifest = local(flinks_manifest(table, f"{table.table.metadata.location}/metadata", waiting))
    manifest = manifest.rename(manifest.with_name(f"{manifest.stem}-{UUID.format(9)}.avro"))
    looked_at(house, table, 9)
    assert deleted(delete(house, table)) == []
    assert local(waiting).exists()
    assert manifest.exists()


def test_tables_that_share_a_folder_of_flinks_manifests_do_not_refuse_each_other(house: House, table: LakeTable) -> None:
    other, folder = roomy(house, "other"), f"{table.table.metadata.location}-of-flink"
    for one in (table, other):
        set_properties(one, flink__manifests__location=folder)
    flinks_manifest(other, folder, stray(other, 1))
    house.pass_time(9 * DAY)
    assert house.services.clean_orphans.look(table.identifier).refusals == ()
    assert house.services.clean_orphans.look(other.identifier).refusals == ()


def test_a_manifest_of_flink_that_cannot_be_read_refuses_the_run(house: House, table: LakeTable) -> None:
    manifest = flinks_manifest(table, f"{table.table.metadata.location}/metadata", stray(table))
    local(manifest).write_bytes(local(manifest).read_bytes()[:-20])
    house.pass_time(9 * DAY)
    with pytest.raises(Exception, match="manifest"):
        house.services.clean_orphans.look(table.identifier)
