"""Looks at keyed tables read only the manifests that are new, and find what a look finds that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.kept_manifests import KeptManifests
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.keyed.compacted import expire
from compaction_pipeline_tests.merging.counting_io import COUNTING, CountingIO

Opened = Callable[..., list[str]]


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path, **COUNTING)


@pytest.fixture
def kept() -> KeptManifests:
    return KeptManifests()


@pytest.fixture
def opened(log: ChangeLog) -> Opened:
    """The names of the manifests that were opened since the last call, sorted; with `of=".parquet"` those of the data files."""

    def since(of: str = ".avro") -> list[str]:
        names = [path.rsplit("/", 1)[-1] for path in CountingIO.opened]
        CountingIO.opened.clear()
        return sorted(each for each in names if each.endswith(of) and not each.startswith("snap-"))

    since()
    return since


def look(log: ChangeLog, kept: KeptManifests) -> KeyedFiles:
    """What a look finds. It is the same as what a look without anything kept finds, types of partition values included."""
    stores = load_stores(log.catalog, ("db", "t"))
    found = read_keyed_files(stores, kept)
    assert repr(found) == repr(read_keyed_files(stores))
    return found


def look_alone(log: ChangeLog, kept: KeptManifests) -> KeyedFiles:
    return read_keyed_files(load_stores(log.catalog, ("db", "t")), kept)


def manifests(table: Table) -> set[str]:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return {each.manifest_path.rsplit("/", 1)[-1] for each in snapshot.manifests(table.io)}


def bounded(file: OutputFile) -> OutputFile:
    """The file with bounds in its manifest entry, as writers give it."""
    return replace(file, lower_bounds={1: "0000000000000000"}, upper_bounds={1: "0f00000000000000"})


def filled(log: ChangeLog) -> None:
    """Commit twice to each store."""
    for number in (1, 2):
        log.commit(log.changes(1, "I", 0, [(row(number), 1)]))
        log.commit_base(log.base_rows(1, 0, [row(10 + number)]))


def test_a_look_reads_no_manifest_when_no_head_moved(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    filled(log)
    expected = manifests(log.base) | manifests(log.change)
    opened()
    first = look_alone(log, kept)
    assert opened() == sorted(expected), "each manifest is read once"
    assert look_alone(log, kept) == first
    assert opened() == []


def test_a_look_reads_only_the_manifests_that_are_new(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    filled(log)
    look_alone(log, kept)
    before = manifests(log.change) | manifests(log.base)
    new = log.changes(1, "I", 0, [(row(3), 1)])
    log.commit(new)
    opened()
    found = look_alone(log, kept)
    assert opened() == sorted((manifests(log.change) | manifests(log.base)) - before)
    assert new.path in {file.path for file in found.changes}
    assert found == look(log, kept)


def test_a_rolled_back_store_has_its_old_files_again(log: ChangeLog, kept: KeptManifests) -> None:
    filled(log)
    first = look(log, kept)
    then = [table.refresh().current_snapshot() for table in (log.change, log.base)]
    filled(log)
    second = look(log, kept)
    assert (len(second.changes), len(second.base)) == (4, 4)
    for table, snapshot in zip((log.change, log.base), then, strict=True):
        assert snapshot is not None
        table.refresh().manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()
        files = look(log, kept)
    assert (files.changes, files.base) == (first.changes, first.base)
    assert kept.files == 8, "nothing is kept of the snapshots that are no longer the heads"


def test_nothing_is_kept_of_a_table_that_was_made_anew(tmp_path: Path, kept: KeptManifests) -> None:
    log = ChangeLog(tmp_path / "one")
    filled(log)
    look(log, kept)
    for name in ("db.t", "db.t_change_"):
        log.catalog.drop_table(name)
    log.catalog.drop_namespace("db")
    again = ChangeLog(tmp_path / "one")
    again.commit(again.changes(1, "I", 0, [(row(7), 1)]))
    assert [file.record_count for file in look(again, kept).changes] == [1]
    assert look(again, kept).base == ()


def test_files_whose_snapshot_is_expired_are_opened_once(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    file = bounded(log.changes(1, "I", 0, [(row(1), 1)]))
    log.commit(file)
    appended = log.change.refresh().current_snapshot()
    assert appended is not None
    log.commit(bounded(log.changes(1, "I", 0, [(row(2), 1)])))
    opened()
    look_alone(log, kept)
    assert opened(".parquet") == []
    expire(log.change.refresh(), appended.snapshot_id)
    look_alone(log, kept)
    assert opened(".parquet") == [file.path.rsplit("/", 1)[-1]], "nothing says any more that a writer of changes appended it"
    look_alone(log, kept)
    assert opened(".parquet") == []
    assert look(log, kept).row_spans == {}


def test_the_transactions_of_rewritten_files_are_kept(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    rewritten = log.changes(1, "I", 0, [(row(2), 1, 1)])
    log.commit(rewritten, operation=Operation.OVERWRITE)
    look_alone(log, kept)
    opened()
    assert look_alone(log, kept).row_spans == {rewritten.path: TransactionSpan(1, 1)}
    assert opened(".parquet") == []
    assert look(log, kept).row_spans == {rewritten.path: TransactionSpan(1, 1)}


def test_a_partition_has_the_type_that_its_column_has_now(tmp_path: Path, kept: KeptManifests) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", IntegerType()))
    log = ChangeLog(tmp_path, schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")))
    log.commit(log.changes(1, "I", 0, [({"id": 1, "day": 5}, 1)]))
    assert "type='int'" in repr(look(log, kept).changes)
    for store in (log.base, log.change):
        with store.refresh().update_schema() as update:
            update.update_column("day", LongType())
    log.commit(log.changes(1, "I", 0, [({"id": 2, "day": 5}, 1)]))
    found = look(log, kept).changes
    assert "type='int'" not in repr(found)
    assert len({file.node for file in found}) == 1


def test_memory_is_bounded_and_a_large_table_is_kept_in_part(log: ChangeLog, opened: Opened) -> None:
    for number in range(6):
        log.commit(log.changes(1, "I", 0, [(row(number), 1)]))
    kept = KeptManifests(most_files=8)
    look(log, kept)
    assert kept.files == 8, "four manifests of one file"
    opened()
    look_alone(log, kept)
    assert len(opened()) == 2


def test_the_table_that_was_looked_at_longest_ago_is_forgotten_first(tmp_path: Path, opened: Opened) -> None:
    kept = KeptManifests(most_files=5)
    one, two, three = (ChangeLog(tmp_path / name, **COUNTING) for name in ("one", "two", "three"))
    for each in (one, two, three):
        each.commit(each.changes(1, "I", 0, [(row(1), 1)]))
    for each in (one, two, one, three):
        look(each, kept)
    assert kept.files == 4
    opened()
    look_alone(one, kept)
    assert opened() == []
    look_alone(two, kept)
    assert opened() == sorted(manifests(two.change))


def test_a_look_that_fails_forgets_nothing(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    filled(log)
    look_alone(log, kept)
    log.commit(log.changes(1, "I", 0, [(row(3), 1)]))
    snapshot = log.change.refresh().current_snapshot()
    assert snapshot is not None
    added = [each for each in snapshot.manifests(log.change.io) if each.added_snapshot_id == snapshot.snapshot_id]
    new = Path(added[0].manifest_path.removeprefix("file://"))
    away = new.rename(new.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        look_alone(log, kept)
    away.rename(new)
    opened()
    assert len(look_alone(log, kept).changes) == 3
    assert opened() == [new.name]


def test_the_manifests_of_a_refused_table_are_kept_too(log: ChangeLog, kept: KeptManifests, opened: Opened) -> None:
    filled(log)
    log.commit_base(log.base_rows(1, 7, [row(20)]))
    for expected in (sorted(manifests(log.base) | manifests(log.change)), []):
        opened()
        with pytest.raises(TableRefused, match="which changes are already in the base store is unknown"):
            look_alone(log, kept)
        assert opened() == expected


def test_a_partition_column_that_is_lost_is_refused_although_its_files_are_kept(tmp_path: Path, kept: KeptManifests) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", IntegerType()))
    log = ChangeLog(tmp_path, schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")))
    log.commit(log.changes(1, "I", 0, [({"id": 1, "day": 5}, 1)]))
    look(log, kept)
    stores = load_stores(log.catalog, ("db", "t"))
    # Programs may remove old schemas from the metadata.
    schemas = stores.change.metadata.schemas
    without = [Schema(*(one for one in each.fields if one.name != "day"), schema_id=each.schema_id) for each in schemas]
    stores.change.metadata = stores.change.metadata.model_copy(update={"schemas": without})
    for each in (KeptManifests(), kept):
        with pytest.raises(TableRefused, match="is in no schema of the metadata any more"):
            read_keyed_files(stores, each)
