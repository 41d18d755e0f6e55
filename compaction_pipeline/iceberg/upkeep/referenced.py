"""Finds every path that the metadata of a table names, so that no file that anything may reach is called an orphan.

Paths are told one after the other. Only the names of manifests, lists and metadata files are kept, and the content of one file at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.core.upkeep.file_names import is_metadata
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState
from compaction_pipeline.core.upkeep.record import UpkeepRecord
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.iceberg.catalogs.metadata_files import read_metadata
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.manifests.entries import check_live_count, readable
from compaction_pipeline.iceberg.manifests.lists import read_manifests
from compaction_pipeline.iceberg.second_look import looked_at_twice
from compaction_pipeline.iceberg.upkeep.unreachable import as_snapshot

_NEWEST_FORMAT = 3
_VERSION_HINT = "version-hint.text"

_Read = TypeVar("_Read")


class Referenced:
    """What one look reads of metadata. It is asked again for what newer metadata of the same tables names besides."""

    def __init__(self) -> None:
        self._readers: dict[str, _Reader] = {}

    def paths(self, stores: Iterable[Table], kept: Sequence[UpkeepRecord] = ()) -> Iterator[str]:
        """Yield every path that the metadata of these loaded tables names, some more than once. A keyed table has two.

        `kept` are expiries whose files may still be there: what their removed snapshots name is told too. What was told before from a list,
        a manifest or an older metadata file is not told again. Raises StorageUnavailable or TableRefused for what cannot be read: nothing
        can be said of any file then. Files of older metadata and of removed snapshots may be missing, because they may have been deleted.
        """
        for store in stores:
            table_uuid = str(store.metadata.table_uuid)
            reader = self._readers.setdefault(table_uuid, _Reader(store.io))
            yield from reader.paths(store)
            for record in kept:
                if record.table_uuid == table_uuid:
                    yield from reader.of_removed(record)

    def of_forks(self, states: Mapping[str, MetadataState], listing: Iterable[ListedFile]) -> Iterator[str]:
        """Yield what other listed metadata of the same tables names, but not its own path. It comes after `paths`.

        It may be of another catalog in which the table is registered, and people there may read what it names. `states` says whose it is.
        """
        for file in listing:
            if is_metadata(file.path.rsplit("/", 1)[-1]) and not any(reader.leads_to(file.path) for reader in self._readers.values()):
                state = states.get(file.path)
                reader = self._readers.get(state.uuid or "") if state is not None else None
                if reader is not None:
                    yield from reader.of_fork(file.path)


def flinks_files(io: FileIO, manifest: str) -> Sequence[str]:
    """The files that a manifest of Flink lists, and that no snapshot may name yet. None when it is gone: Flink has committed them.

    Raises StorageUnavailable or TableRefused when it cannot be read.
    """
    return _content(f"Flink's manifest {manifest}", partial(_paths_in, io, manifest), may_be_gone=True) or ()


class _Reader:
    """What one look has read. A manifest is read once, however many snapshots have it."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lists: set[str] = set()
        self._manifests: set[str] = set()
        self._metadata: set[str] = set()
        self._logged: set[str] = set()

    def paths(self, table: Table) -> Iterator[str]:
        # Credentials of an earlier load may have ended.
        self._io, metadata = table.io, table.metadata
        if metadata.format_version > _NEWEST_FORMAT:
            raise TableRefused(f"format version {metadata.format_version} may name files in ways that this version does not know")
        self._metadata.add(table.metadata_location)
        yield table.metadata_location
        # Tables of a Hadoop catalog have it, and have no other folder of metadata.
        yield f"{metadata.location.rstrip('/')}/metadata/{_VERSION_HINT}"
        yield from self._named(metadata)
        yield from self._of_snapshots(metadata.snapshots, may_be_gone=False)
        yield from self._of_older(metadata)

    def of_removed(self, record: UpkeepRecord) -> Iterator[str]:
        """What the snapshots name that an expiry has removed, or is about to."""
        yield from record.statistics
        yield from self._of_snapshots([as_snapshot(one) for one in record.removed], may_be_gone=True)

    def leads_to(self, place: str) -> bool:
        """Whether a log that was read names this metadata."""
        return place in self._metadata or place in self._logged

    def of_fork(self, place: str) -> Iterator[str]:
        read = self._older(place)
        if read is not None:
            yield from self._of_metadata(read)

    def _of_older(self, metadata: TableMetadata) -> Iterator[str]:
        """What the metadata in the log names, and the metadata before it, as far as logs tell.

        Each file of the table's own log is read. Before these, the oldest that is there is read of each log, as Iceberg's Java library
        does: its own log goes on where the newer one ends.
        """
        log = [entry.metadata_file for entry in metadata.metadata_log]
        oldest: TableMetadata | None = None
        for place in log:
            read = self._older(place)
            if read is not None:
                yield from self._of_metadata(read)
                oldest = oldest or read
        while oldest is not None:
            older, oldest = [entry.metadata_file for entry in oldest.metadata_log], None
            for place in older:
                oldest = self._older(place)
                if oldest is not None:
                    yield from self._of_metadata(oldest)
                    break

    def _older(self, place: str) -> TableMetadata | None:
        """The metadata at this place; None when it was read before, or is gone."""
        if place in self._metadata:
            return None
        self._metadata.add(place)
        return _content(f"metadata file {place}", partial(read_metadata, self._io, place), may_be_gone=True)

    def _of_metadata(self, older: TableMetadata) -> Iterator[str]:
        yield from self._named(older)
        yield from self._of_snapshots(older.snapshots, may_be_gone=True)

    def _named(self, metadata: TableMetadata) -> Iterator[str]:
        """The paths that stand in the metadata itself, but for those of snapshots."""
        log = [entry.metadata_file for entry in metadata.metadata_log]
        self._logged.update(log)
        yield from log
        yield from (file.statistics_path for file in metadata.statistics)
        yield from (file.statistics_path for file in metadata.partition_statistics)

    def _of_snapshots(self, snapshots: Sequence[Snapshot], *, may_be_gone: bool) -> Iterator[str]:
        for snapshot in snapshots:
            if snapshot.manifest_list is not None:
                if snapshot.manifest_list in self._lists:
                    continue
                self._lists.add(snapshot.manifest_list)
                yield snapshot.manifest_list
            what = f"the manifest list of snapshot {snapshot.snapshot_id}"
            for manifest in _content(what, partial(read_manifests, self._io, snapshot), may_be_gone=may_be_gone) or ():
                if manifest.manifest_path not in self._manifests:
                    self._manifests.add(manifest.manifest_path)
                    yield manifest.manifest_path
                    read = partial(_files_of, self._io, manifest)
                    yield from _content(f"manifest {manifest.manifest_path}", read, may_be_gone=may_be_gone) or ()


def _files_of(io: FileIO, manifest: ManifestFile) -> list[str]:
    """The paths of all entries of a manifest, DELETED ones included: older snapshots may still have such a file."""
    if manifest.key_metadata:
        raise TableRefused(f"manifest {manifest.manifest_path} is encrypted: which files it lists cannot be read")
    return _paths_in(io, manifest.manifest_path, manifest)


@looked_at_twice
def _paths_in(io: FileIO, path: str, manifest: ManifestFile | None = None) -> list[str]:
    """The paths of all entries of the manifest at this path. `manifest` is what a list says of it, where a list does."""
    with io.new_input(path).open() as stream:
        content = stream.read()
    paths, live = list[str](), 0
    with readable(f"manifest {path}"):
        for status, named in ManifestDecoder(content).paths():
            paths.append(named)
            live += status != ManifestEntryStatus.DELETED
    if manifest is not None:
        check_live_count(manifest, live)
    return paths


def _content(what: str, read: Callable[[], _Read], *, may_be_gone: bool) -> _Read | None:
    """What `read` returns. None when a file that may be gone is: what only it names can no longer be reached."""
    with translated(what, is_file=True):
        try:
            return read()
        except OSError as error:
            if may_be_gone and storage_failure(error) is StorageFailure.ABSENT:
                return None
            raise
