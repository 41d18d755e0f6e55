"""Every path that metadata names: nothing that a table wrote and that anything may reach is left out, and a half-read table raises."""

from __future__ import annotations

import shutil
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from compaction_pipeline.core.errors import CompactionError, StorageUnavailable, TableRefused
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files
from compaction_pipeline.iceberg.upkeep.metadata_states import ListedMetadata
from compaction_pipeline.iceberg.upkeep.referenced import Referenced
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.compacted import Compacted


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table()


def loaded(table: LakeTable) -> Table:
    return table.lake.catalogs.load(table.identifier)


def referenced(*stores: Table) -> set[str]:
    return {urlsplit(path).path for path in Referenced().paths(stores)}


def on_disk(store: Table) -> set[str]:
    return {str(path) for path in Path(urlsplit(store.metadata.location).path).rglob("*") if path.is_file()}


def local(path: str) -> Path:
    return Path(urlsplit(path).path)


def remove_oldest(table: LakeTable, count: int) -> Table:
    store = loaded(table)
    remove(store, Removal([one.snapshot_id for one in store.metadata.snapshots[:count]], ()))
    return loaded(table)


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_names_each_file_that_its_writers_committed(lake: Lake, version: int) -> None:
    table = lake.table(version=version)
    for number in range(4):
        table.table.append(pa.table({"id": pa.array([number, number + 10]), "name": ["a", "b"]}, schema=table.table.schema().as_arrow()))
    table.table.delete("id = 1")
    table.table.manage_snapshots().create_tag(table.table.metadata.snapshots[0].snapshot_id, "old").commit()
    if version == 2:
        file = table.ids(20, 21)
        table.delete_positions((file.path, 0))
        table.delete_ids(21)
    store = loaded(table)
    assert on_disk(store) - referenced(store) == set()
    assert len(on_disk(store)) > 20
    stray = local(store.metadata.location) / "data" / "stray.parquet"
    stray.write_bytes(b"")
    assert on_disk(store) - referenced(store) == {str(stray)}


def test_the_hint_of_hadoop_tables_and_the_metadata_file_are_named(table: LakeTable) -> None:
    store = loaded(table)
    paths = set(Referenced().paths([store]))
    assert {store.metadata_location, f"{store.metadata.location}/metadata/version-hint.text"} <= paths


def test_files_of_removed_snapshots_stay_named_while_older_metadata_is_in_the_log(table: LakeTable) -> None:
    """Readers that loaded the table a moment ago, and a person who sets the pointer back, still need them."""
    for number in range(4):
        table.ids(number)
    table.lake.committer.commit(table.identifier, "r1", [table.merge()])  # type: ignore[arg-type]
    store = remove_oldest(table, 4)
    assert len(store.metadata.snapshots) == 1
    assert on_disk(store) - referenced(store) == set()


def test_a_deleted_entry_of_a_kept_manifest_names_its_file(lake: Lake) -> None:
    table = lake.table(properties={"write.metadata.previous-versions-max": "1"})
    old = table.ids(1)
    table.ids(2)
    table.lake.committer.commit(table.identifier, "r1", [table.merge()])  # type: ignore[arg-type]
    store = remove_oldest(table, 2)
    store = remove_oldest(table, 0)
    for gone in store.metadata.metadata_log:
        local(gone.metadata_file).unlink()
    assert urlsplit(old.path).path in referenced(store)


def test_old_metadata_whose_files_were_expired_is_no_error(table: LakeTable) -> None:
    for number in range(3):
        table.ids(number)
    before = loaded(table)
    store = remove_oldest(table, 2)
    lists = [one.manifest_list for one in before.metadata.snapshots[:2]]
    manifest = before.metadata.snapshots[0].manifests(before.io)[0].manifest_path
    local(lists[0]).unlink()
    named = referenced(store)
    # What is gone is still named, and the rest of it is read.
    assert {urlsplit(one).path for one in lists} <= named
    assert urlsplit(manifest).path in named
    local(store.metadata.metadata_log[0].metadata_file).unlink()
    assert referenced(store) <= named


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("how", ["gone", "corrupt", "denied"])
def test_a_file_of_the_current_metadata_that_cannot_be_read_raises(table: LakeTable, what: str, how: str) -> None:
    """The oldest snapshot counts as much as the newest."""
    table.ids(1)
    table.ids(2)
    store = loaded(table)
    oldest = store.metadata.snapshots[0]
    path = local(oldest.manifest_list if what == "list" else oldest.manifests(store.io)[0].manifest_path)
    if how == "gone":
        path.unlink()
    elif how == "corrupt":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(StorageUnavailable):
        list(Referenced().paths([store]))


def test_a_manifest_that_lists_fewer_files_than_its_list_says_raises(table: LakeTable) -> None:
    table.ids(1)
    row_delta(table.table, [table.data_file([{"id": 2, "name": "a"}]), table.data_file([{"id": 3, "name": "b"}])])
    store = loaded(table)
    one, two = ({each.manifest_path for each in snapshot.manifests(store.io)} for snapshot in store.metadata.snapshots)
    [source], [target] = one, two - one
    shutil.copy(local(source), local(target))
    with pytest.raises(StorageUnavailable, match="lists 1 live files but its manifest list says 2"):
        list(Referenced().paths([store]))


def test_older_metadata_that_is_damaged_raises(table: LakeTable) -> None:
    table.ids(1)
    table.ids(2)
    store = loaded(table)
    path = local(store.metadata.metadata_log[0].metadata_file)
    path.write_text(path.read_text()[:-10])
    with pytest.raises(CompactionError):
        list(Referenced().paths([store]))


def test_metadata_that_fell_out_of_the_log_is_named_as_far_as_logs_tell(lake: Lake) -> None:
    table = lake.table(properties={"write.metadata.previous-versions-max": "2"})
    for number in range(9):
        table.ids(number)
    store = loaded(table)
    assert len(store.metadata.metadata_log) == 2
    every = {path for path in on_disk(store) if path.endswith(".metadata.json")}
    assert len(every) == 10
    assert every <= referenced(store)
    # Where the chain is cut, what lies behind is named by nothing.
    versions = sorted(every)
    for version in versions[4:6]:
        Path(version).unlink()
    assert sorted(every & referenced(store)) == versions[4:]


def test_a_manifest_that_only_older_metadata_names_is_named_with_its_files(lake: Lake) -> None:
    """A staged snapshot that was made and expired since: its metadata fell out of the table's own log."""
    table = lake.table(properties={"write.metadata.previous-versions-max": "2"})
    table.ids(1)
    old = table.ids(2)
    table.lake.committer.commit(table.identifier, "r1", [table.merge()])  # type: ignore[arg-type]
    remove_oldest(table, 2)
    for number in range(3, 9):
        table.ids(number)
    store = loaded(table)
    assert len(store.metadata.metadata_log) == 2
    paths = {path for path in on_disk(store) if not path.endswith(".metadata.json")}
    assert urlsplit(old.path).path in referenced(store)
    assert paths <= referenced(store)


def statistics(snapshot_id: int, path: str) -> StatisticsFile:
    blob = BlobMetadata(type="apache-datasketches-theta-v1", snapshot_id=snapshot_id, sequence_number=1, fields=[1])
    return StatisticsFile(
        snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=1, file_footer_size_in_bytes=1, blob_metadata=[blob]
    )


def test_statistics_files_are_named_also_those_that_two_snapshots_share(lake: Lake) -> None:
    table = lake.table(properties={"write.metadata.previous-versions-max": "1"})
    table.ids(1)
    table.ids(2)
    store = loaded(table)
    shared = f"{store.metadata.location}/metadata/shared.puffin"
    partitions = f"{store.metadata.location}/metadata/partition-stats.parquet"
    ids = [one.snapshot_id for one in store.metadata.snapshots]
    with store.transaction() as transaction, transaction.update_statistics() as update:
        for snapshot_id in ids:
            update.set_statistics(statistics(snapshot_id, shared))
    with loaded(table).transaction() as transaction:
        file = PartitionStatisticsFile(snapshot_id=ids[1], statistics_path=partitions, file_size_in_bytes=1)
        transaction._apply((SetPartitionStatisticsUpdate(partition_statistics=file),))
    assert {shared, partitions} <= set(Referenced().paths([loaded(table)]))
    # One of the two snapshots goes, and its metadata with it. The other one still has the file.
    store = remove_oldest(table, 1)
    for gone in store.metadata.metadata_log:
        local(gone.metadata_file).unlink()
    assert {shared, partitions} <= set(Referenced().paths([store]))


def test_a_format_that_this_version_does_not_know_is_refused(table: LakeTable) -> None:
    table.ids(1)
    store = loaded(table)
    store.metadata = store.metadata.model_copy(update={"format_version": 4})
    with pytest.raises(TableRefused, match="format version 4"):
        list(Referenced().paths([store]))


def test_both_stores_of_a_keyed_table_name_their_files(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    for number in range(3):
        log.insert(row(number))
    log.compactions.compact()
    log.insert(row(7))
    stores = load_stores(log.catalog, ("db", "t"))
    files = on_disk(stores.base) | on_disk(stores.change)
    assert files - referenced(*stores.tables) == set()
    assert files - referenced(stores.base) != set()
    assert files - referenced(stores.change) != set()
    assert any(path.endswith(".puffin") for path in files)


def test_each_manifest_is_read_once(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    from compaction_pipeline.iceberg.upkeep import referenced as module

    for number in range(6):
        table.ids(number)
    store, read = loaded(table), list[str]()
    files_of = module._files_of
    monkeypatch.setattr(module, "_files_of", lambda io, manifest: read.append(manifest.manifest_path) or files_of(io, manifest))
    assert on_disk(store) - referenced(store) == set()
    assert len(read) == len(set(read)) >= 6


def test_metadata_that_a_log_names_is_no_fork_and_other_metadata_of_the_table_is(lake: Lake) -> None:
    """Of older logs only the oldest metadata is read, so logs tell of metadata that nobody has read."""
    table = lake.table(properties={"write.metadata.previous-versions-max": "3"})
    for number in range(8):
        table.ids(number)
    store, told = loaded(table), Referenced()
    deque(told.paths([store]), maxlen=0)
    files = listed_files(store.io, store.metadata.location)
    states = ListedMetadata([store.io])
    assert list(told.of_forks(states, files)) == []
    # Another catalog went on from this metadata, and no log of this table names what it wrote.
    fork = local(store.metadata_location).with_name("00099-ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a01.metadata.json")
    shutil.copy(local(store.metadata_location), fork)
    again = listed_files(store.io, store.metadata.location)
    named = {urlsplit(path).path for path in told.of_forks(states, again)}
    assert named >= {urlsplit(one.metadata_file).path for one in store.metadata.metadata_log}
