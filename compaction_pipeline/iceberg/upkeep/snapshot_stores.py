"""Removes snapshots from the stores of tables, and deletes the files that only they reached: the SnapshotStores port on PyIceberg."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CompactionError, StorageUnavailable
from compaction_pipeline.core.tables.deletion_ban import would_go
from compaction_pipeline.core.tables.kinds import is_change_store
from compaction_pipeline.core.tables.table import TableIdentifier, data_folder
from compaction_pipeline.core.upkeep.ports.snapshots import Deletion, Doomed, Removal, RemovalState, StoreLook
from compaction_pipeline.core.upkeep.record import DeletedFiles, RemovedSnapshot, UpkeepRecord
from compaction_pipeline.core.words import count_text
from compaction_pipeline.formats.file_io.local_files import local_path
from compaction_pipeline.iceberg.catalogs.commit_answers import answer_in_words, answer_of, no_proof_in_words, why_not_asked
from compaction_pipeline.iceberg.catalogs.inline_manifests import inline_paths
from compaction_pipeline.iceberg.catalogs.metadata_files import read_metadata
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import counted_sends
from compaction_pipeline.iceberg.deletions import failed_deletes, why_no_deletion
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.opened_paths import opened_name, opens_what_it_says
from compaction_pipeline.iceberg.scan import refusal_of_contents
from compaction_pipeline.iceberg.stores import open_stores
from compaction_pipeline.iceberg.upkeep.history import history_of
from compaction_pipeline.iceberg.upkeep.managed import why_the_catalog_decides
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal as ToRemove
from compaction_pipeline.iceberg.upkeep.remove_snapshots import remove
from compaction_pipeline.iceberg.upkeep.unreachable import Judge

_BATCH = 1_000
_MANIFESTS_REPLACED = "manifests-replaced"
_FILES_MOVED = frozenset({"added-data-files", "added-delete-files", "deleted-data-files", "removed-delete-files"})
"""What summaries of other programs say of manifests and of files. Source: Iceberg, `SnapshotSummary`."""
_OLD_METADATA = 100
"""As many older metadata files are read at most, to find the one that a removal was made on."""

_logger = logging.getLogger(__name__)


class IcebergSnapshotStores:
    """The SnapshotStores port. `on_step` is told each step of a removal and of a deletion; crash tests end the process there."""

    def __init__(self, catalogs: Catalogs, on_step: Callable[[str], None] = lambda step: None) -> None:
        self._catalogs = catalogs
        self._on_step = on_step

    def look(self, table: TableIdentifier) -> Sequence[StoreLook]:
        stores = open_stores(self._catalogs, table)
        why = why_no_deletion(*stores.tables)
        return [_look(name, loaded, why) for name, loaded in zip(stores.names(table), stores.tables, strict=True)]

    def remove(self, look: StoreLook, snapshot_ids: Sequence[int], refs: Collection[str]) -> Removal:
        table: Table = look.handle
        self._on_step("before-removal")
        with counted_sends() as sends:
            try:
                removed = remove(table, ToRemove(snapshot_ids, refs))
            except Exception as error:  # A catalog may raise anything; what is certain is read from the error.
                return _not_removed(look.store, table, error, sends.statuses)
        self._on_step("after-removal")
        if removed.before is None:
            return Removal(RemovalState.LANDED)
        dropped = _refs_on(removed.before, set(snapshot_ids)) - set(refs)
        return Removal(RemovalState.LANDED, keeps_files=_refs_in_words(dropped), base_known=True)

    def dropped_beside(self, look: StoreLook, record: UpkeepRecord) -> str | None:
        gone = {one.snapshot_id for one in record.removed}
        table: Table = look.handle
        for entry in reversed(table.metadata.metadata_log[-_OLD_METADATA:]):
            try:
                before = read_metadata(table.io, entry.metadata_file)
            except FileNotFoundError:
                break
            except Exception as error:  # A FileIO and a decoder raise errors of many types.
                raise StorageUnavailable(f"metadata {entry.metadata_file} of table {look.store} cannot be read: {error}") from error
            if any(one.snapshot_id in gone for one in before.snapshots):
                return _refs_in_words(_refs_on(before, gone) - set(record.dropped_refs))
        return "the metadata on which the snapshots were removed is gone, so nobody can tell whether a tag was dropped with them"

    def delete_unreachable(self, doomed: Doomed) -> Deletion:
        table, record = doomed.look.handle, doomed.record
        with translated(f"the files of table {doomed.look.store}"):
            judge = Judge([table, *(look.handle for look in doomed.beside)], doomed.kept)
            found = judge.unreachable(record.removed, record.statistics)
        self._on_step("files-judged")
        run = _Run(doomed, judge, self._catalogs.load)
        deleted = DeletedFiles()
        steps = (
            ("content", list(found.content)),
            ("statistics", found.statistics),
            ("manifests", found.manifests),
            ("lists", found.lists),
        )
        if doomed.look.keeps_files is not None:
            return Deletion(deleted, would_go(doomed.look.keeps_files, (path for _, paths in steps for path in run.own(paths))))
        for step, paths in steps:
            gone = run.delete(paths)
            deleted += _counted(step, gone, sum(found.content.get(path, 0) for path in gone))
            if run.problem is not None:
                break
            self._on_step(f"{step}-deleted")
        return Deletion(deleted + DeletedFiles(kept_elsewhere=run.elsewhere), run.problem)


class _Run:
    """One deletion in one table. After the first problem nothing more is deleted."""

    def __init__(self, doomed: Doomed, judge: Judge, load: Callable[[TableIdentifier], Table]) -> None:
        """`load` loads a store of the table as it is then."""
        self._table: Table = doomed.look.handle
        self._beside: Sequence[Table] = [look.handle for look in doomed.beside]
        self._doomed = doomed
        self._judge = judge
        self._load = load
        self._folders = tuple(f"{_comparable(folder)}/" for folder in _folders(self._table.metadata))
        self._back: set[str] = set()
        self.problem: str | None = None
        self.elsewhere = 0

    def delete(self, paths: Sequence[str]) -> Sequence[str]:
        """Delete these files, in batches. Return those that are gone now."""
        gone: list[str] = []
        for start in range(0, len(paths), _BATCH):
            batch = self.own(paths[start : start + _BATCH])
            if self.problem is not None or not batch:
                continue
            self._look_again()
            if self.problem is not None:
                break
            batch = [path for path in batch if opened_name(path) not in self._back]
            failed = failed_deletes(self._table, batch, *self._beside)
            gone += [path for path in batch if path not in failed]
            if failed:
                path, error = next(iter(failed.items()))
                self.problem = f"{count_text(len(failed), 'file')} cannot be deleted, e.g. {path}: {error}"
        return gone

    def _look_again(self) -> None:
        """Note which files came back into the table since it was judged. That, and a pause of this process, may have taken hours."""
        if not self._doomed.may_go_on():
            self.problem = "the time for this run is over, or another process goes on with it"
            return
        try:
            now = self._load(self._doomed.look.store)
            self._beside = [self._load(look.store) for look in self._doomed.beside]
            forbidden = why_no_deletion(now, *self._beside)
            if forbidden is not None:
                self.problem = forbidden
            elif now.metadata.table_uuid != self._table.metadata.table_uuid:
                self.problem = "another table has the name now"
            elif now.metadata_location != self._table.metadata_location:
                with translated(f"the files of table {self._doomed.look.store}"):
                    self._back |= self._judge.names_of_new(now)
                self._table = now
        except CompactionError as error:
            self.problem = str(error)

    def own(self, paths: Sequence[str]) -> Sequence[str]:
        """Those of these files that lie in the folders of the table, and that no other table has."""
        others = set(self._doomed.of_others(paths))
        own = [path for path in paths if self._lies_here(path) and path not in others]
        self.elsewhere += len(paths) - len(own)
        return own

    def _lies_here(self, path: str) -> bool:
        steps_out = "/." in f"/{path}" and any(step in (".", "..") for step in path.split("/"))
        is_metadata = path.endswith(".metadata.json")
        return opens_what_it_says(path) and not steps_out and not is_metadata and _comparable(path).startswith(self._folders)


def _look(store: TableIdentifier, table: Table, forbidden: str | None) -> StoreLook:
    metadata = table.metadata
    statistics: dict[int, tuple[str, ...]] = {}
    for one in chain(metadata.statistics, metadata.partition_statistics):
        statistics[one.snapshot_id] = (*statistics.get(one.snapshot_id, ()), one.statistics_path)
    return StoreLook(
        store=store,
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.metadata_location,
        last_sequence_number=0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number,
        last_updated_ms=metadata.last_updated_ms,
        history=history_of(metadata),
        properties=dict(metadata.properties),
        leads={
            one.snapshot_id: RemovedSnapshot(one.snapshot_id, one.manifest_list or None, tuple(inline_paths(one) or ()))
            for one in metadata.snapshots
        },
        statistics=statistics,
        refusal=refusal_of_contents(metadata) or why_the_catalog_decides(table) or _no_uuid(table) or _compacted_change_store(metadata),
        keeps_files=forbidden or _why_requests_fail(table),
        handle=table,
    )


def _no_uuid(table: Table) -> str | None:
    """Why a table without a uuid is refused. Format v1 allows it, and PyIceberg then invents another one at each load."""
    if table.metadata.format_version > 1:
        return None
    with translated(f"metadata {table.metadata_location}", is_file=True), table.io.new_input(table.metadata_location).open() as stream:
        content = stream.read()
    try:
        named = json.loads(content).get("table-uuid")
    except ValueError:
        # It is compressed. Writers that compress metadata write a uuid.
        return None
    return None if named else "its metadata names no uuid, so it cannot be told from another table under its name"


def _compacted_change_store(metadata: TableMetadata) -> str | None:
    """Why a change store is refused in which another program merged files. Without its snapshot, nothing would tell of the lost deletes."""
    if not is_change_store(metadata.properties):
        return None
    for one in metadata.snapshots:
        summary = one.summary
        if summary is None or summary.operation is not Operation.REPLACE:
            continue
        said = summary.additional_properties
        # A rewrite of manifests moves no file.
        if RECORD_ID_PROPERTY not in said and not (_MANIFESTS_REPLACED in said and said.keys().isdisjoint(_FILES_MOVED)):
            return (
                f"its snapshot {one.snapshot_id} is of a program that compacted the change store as a plain table: deletes became inserts"
            )
    return None


def _why_requests_fail(table: Table) -> str | None:
    """Why the catalog lets no request for a deletion through; None when it does."""
    if str(table.io.properties.get("s3.remote-signing-enabled", "false")).lower() == "true":
        return "the catalog signs each request ('s3.remote-signing-enabled'), and such signers allow no deletion; let it vend credentials"
    return None


def _not_removed(store: TableIdentifier, table: Table, error: Exception, statuses: Sequence[int | None]) -> Removal:
    not_asked = why_not_asked(table.catalog, error)
    if not_asked is not None:
        return Removal(RemovalState.NOTHING, not_asked)
    answer = answer_of(table.catalog, error, statuses)
    if answer is Answer.UNKNOWN:
        why = no_proof_in_words(error, statuses)
        _logger.warning("table=%s it is not known whether snapshots were removed: %s", store, why)
        return Removal(RemovalState.UNKNOWN, why)
    if answer is Answer.LOST_RACE:
        return Removal(RemovalState.NOTHING, "the table was changed meanwhile; the next run looks again")
    return Removal(RemovalState.NOTHING, f"the catalog refused: {answer_in_words(error, statuses)}")


def _refs_on(metadata: TableMetadata, snapshot_ids: Collection[int]) -> set[str]:
    return {name for name, ref in metadata.refs.items() if ref.snapshot_id in snapshot_ids}


def _refs_in_words(names: Collection[str]) -> str | None:
    if not names:
        return None
    return (
        f"ref {min(names)!r} was made on a snapshot while it was removed, and the catalog dropped both: the files stay, so that they can "
        "be registered again"
    )


def _folders(metadata: TableMetadata) -> Sequence[str]:
    keys = ("write.data.path", "write.object-storage.path", "write.metadata.path")
    named = [metadata.properties[key] for key in keys if metadata.properties.get(key)]
    return [metadata.location, data_folder(metadata.location, metadata.properties), *named]


def _comparable(path: str) -> str:
    """A path by which a file is found in a folder. One on this host may be written with or without `file:`."""
    local = local_path(path)
    return (path if local is None else str(local)).rstrip("/")


def _counted(step: str, gone: Sequence[str], size: int) -> DeletedFiles:
    count = len(gone)
    if step == "content":
        return DeletedFiles(content_files=count, content_bytes=size)
    if step == "manifests":
        return DeletedFiles(manifests=count)
    return DeletedFiles(manifest_lists=count) if step == "lists" else DeletedFiles(statistics_files=count)
