"""One look at all files of a table: the listing first, and then metadata that is loaded afresh."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.update import SetLocationUpdate

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.file_names import carries, is_of_iceberg
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState, OrphanRules, Standing
from compaction_pipeline.core.upkeep.orphans import decide_orphans
from compaction_pipeline.core.upkeep.ports.files import FilesLook
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.upkeep import look_at_files as module
from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker
from compaction_pipeline.iceberg.upkeep.metadata_states import ListedMetadata, metadata_state
from compaction_pipeline_tests.core.upkeep.listings import standing
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.compacted import Compacted

LATER = datetime.now(timezone.utc) + timedelta(days=30)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    made = lake.table()
    append(made, 1)
    return made


def append(table: LakeTable, *ids: int) -> None:
    table.table.refresh()
    table.table.append(pa.table({"id": list(ids), "name": ["n"] * len(ids)}, schema=table.table.schema().as_arrow()))


def look(table: LakeTable, *roots: str) -> FilesLook:
    return IcebergFilesLooker(table.lake.catalogs).look(table.identifier, roots)


def after_listing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do this once, right after the first folder was listed."""
    listed = module.listed_files

    def listing(io: FileIO, location: str) -> Iterator[ListedFile]:
        yield from tuple(listed(io, location))
        monkeypatch.setattr(module, "listed_files", listed)
        act()

    monkeypatch.setattr(module, "listed_files", listing)


def decided(found: FilesLook) -> dict[str, Standing]:
    decision = decide_orphans(found.listing, found.referenced, OrphanRules(found.stores, metadata=found.metadata), LATER)
    assert decision.refusals == ()
    return {file.path: standing(file.path, decision) for file in found.listing}


def test_everything_below_the_location_of_a_table_that_nobody_broke_is_referenced(table: LakeTable) -> None:
    found = look(table)
    assert len(found.listing) == 5
    assert set(decided(found).values()) == {Standing.REFERENCED}
    [store] = found.stores
    assert store.state.uuid == str(table.table.metadata.table_uuid)
    assert found.names == (table.identifier,)
    assert [len(history.snapshots) for history in found.histories] == [1]


def test_an_append_that_is_being_written_while_files_are_listed_is_no_orphan(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are listed, and its commit lands before the metadata is loaded. In the other order they would look unreferenced."""
    file = table.data_file([{"id": 7, "name": "slow"}])
    after_listing(monkeypatch, lambda: row_delta(table.table, [file]))
    standings = decided(look(table))
    assert standings[file.path] is Standing.REFERENCED
    assert set(standings.values()) == {Standing.REFERENCED}


def test_a_table_that_is_made_anew_or_moved_while_it_is_listed_is_not_judged(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def made_anew() -> None:
        table.lake.catalog.drop_table(("db", "t"))
        table.lake.table()

    after_listing(monkeypatch, made_anew)
    with pytest.raises(StorageUnavailable, match="moved or made anew"):
        look(table)

    def moved() -> None:
        # PyIceberg's transaction cannot move a table yet, but its catalogs can.
        loaded = table.lake.catalog.load_table(("db", "t"))
        table.lake.catalog.commit_table(loaded, (), (SetLocationUpdate(location=f"file://{table.lake.folder}/elsewhere"),))

    after_listing(monkeypatch, moved)
    with pytest.raises(StorageUnavailable, match="moved or made anew"):
        look(table)


def test_the_metadata_files_of_our_commits_have_known_names_with_the_id_of_their_record(table: LakeTable) -> None:
    record_id = "0123456789ab"
    append(table, 2)
    before = {file.path for file in look(table).listing}
    table.lake.committer.commit(table.identifier, record_id, [table.merge()])  # type: ignore[arg-type]
    written = {file.path.rsplit("/", 1)[-1] for file in look(table).listing if file.path not in before and "/metadata/" in file.path}
    assert len(written) >= 3
    assert {name for name in written if not is_of_iceberg(name)} == set()
    assert {name for name in written if name.endswith(".avro") and not carries(name, {record_id})} == set()


def test_roots_are_listed_when_somebody_asks(table: LakeTable) -> None:
    root = table.lake.folder / "old"
    root.mkdir()
    (root / "x").write_bytes(b"1")
    assert f"file://{root}/x" in {file.path for file in look(table, f"file://{root}").listing}
    assert f"file://{root}/x" not in {file.path for file in look(table).listing}


@pytest.mark.parametrize(("said", "enabled"), [("false", False), ("TRUE", True), ("yes", False), (None, True)])
def test_gc_enabled_is_read_as_java_reads_it(lake: Lake, said: str | None, enabled: bool) -> None:
    table = lake.table(properties={} if said is None else {"gc.enabled": said})
    [store] = look(table).stores
    assert store.gc_enabled is enabled


def rewritten(table: LakeTable, change: Callable[[dict[str, Any]], None]) -> str:
    """Change the metadata of the table in place."""
    location = table.lake.catalogs.load(table.identifier).metadata_location
    path = Path(urlsplit(location).path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return location


def test_a_table_without_uuid_says_so_although_pyiceberg_invents_one(lake: Lake) -> None:
    table = lake.table(version=1)
    rewritten(table, lambda content: content.pop("table-uuid"))
    [store] = look(table).stores
    assert store.state.uuid is None
    assert table.lake.catalogs.load(table.identifier).metadata.table_uuid is not None


def test_metadata_of_another_table_that_nobody_names_is_read_when_it_is_asked_for(table: LakeTable) -> None:
    other = table.lake.table("other")
    append(other, 5)
    source = Path(urlsplit(other.table.metadata_location).path)
    location = table.table.metadata.location
    target = Path(urlsplit(location).path) / "inner" / "metadata" / source.name
    target.parent.mkdir(parents=True)
    target.write_bytes(source.read_bytes())
    found = look(table)
    decision = decide_orphans(found.listing, found.referenced, OrphanRules(found.stores, metadata=found.metadata), LATER)
    assert [str(other.table.metadata.table_uuid) in sentence for sentence in decision.refusals] == [True]
    target.write_text("{")
    found = look(table)
    decision = decide_orphans(found.listing, found.referenced, OrphanRules(found.stores, metadata=found.metadata), LATER)
    assert ["was not read" in sentence for sentence in decision.refusals] == [True]
    # Only what nobody names is opened.
    assert len(found.metadata) == 0


def test_what_metadata_says_of_itself_is_read_from_plain_and_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    content = {"table-uuid": "u", "last-sequence-number": 3, "last-updated-ms": 1500, "format-version": 2}
    state = MetadataState("u", 3, datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=timezone.utc))
    path.write_text(json.dumps(content))
    assert metadata_state(PyArrowFileIO(), str(path)) == state
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert metadata_state(PyArrowFileIO(), str(path)) == state
    path.write_text(json.dumps({"last-updated-ms": 0}))
    assert metadata_state(PyArrowFileIO(), str(path)) == MetadataState(None, 0, datetime(1970, 1, 1, tzinfo=timezone.utc))
    for wrong in ("[]", "{}", '{"last-updated-ms": "soon"}', '{"last-updated-ms": 1e300}'):
        path.write_text(wrong)
        with pytest.raises(TableRefused, match="no metadata of an Iceberg table"):
            metadata_state(PyArrowFileIO(), str(path))
    path.unlink()
    with pytest.raises(StorageUnavailable):
        metadata_state(PyArrowFileIO(), str(path))
    assert ListedMetadata([PyArrowFileIO()]).get(str(path)) is None


def test_both_stores_of_a_keyed_table_are_listed_and_named(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    for number in range(3):
        log.insert(row(number))
    log.compactions.compact()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh", "catalog-name": "lake"}
    looker = IcebergFilesLooker(Catalogs(lambda name: CatalogEntry(name, properties)))
    found = looker.look(TableIdentifier("lake", ("db",), "t"))
    assert len(found.stores) == len(found.histories) == len(found.names) == 2
    assert {file.path.split("/wh/")[1].split("/")[1] for file in found.listing} == {
        store.location.rsplit("/", 1)[-1] for store in found.stores
    }
    assert set(decided(found).values()) == {Standing.REFERENCED}
