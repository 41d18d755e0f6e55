"""Finds the files that only removed snapshots reach: what may be deleted after an expiry.

Files are compared by the name that a FileIO opens, without folders. Writers of Iceberg put an id into each name, so two files rarely have
one name. Where they do, as imported files may, a file too many stays. And a file that is written as `s3://…` in one place and as `s3a://…`
in another still has one name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.core.upkeep.record import RemovedSnapshot
from compaction_pipeline.formats.avro.entry_decoder import ManifestDecoder
from compaction_pipeline.iceberg.manifests.entries import check_live_count, readable
from compaction_pipeline.iceberg.manifests.lists import read_manifests
from compaction_pipeline.iceberg.opened_paths import opened_name
from compaction_pipeline.iceberg.second_look import looked_at_twice

_Entry = tuple[str, int, bool]
"""Path and size in bytes of a file that a manifest names, and whether it is live there."""

_logger = logging.getLogger(__name__)


@dataclass
class Unreachable:
    """Files that nothing in a table's metadata needs, by kind, each by its path. `content` has the sizes in bytes."""

    content: dict[str, int] = field(default_factory=dict)
    manifests: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    statistics: list[str] = field(default_factory=list)


class Judge:
    """Tells which files only removed snapshots reach. `stores` are all stores of the table as they are now, and `kept` are snapshots that
    left their metadata, but whose files stay."""

    def __init__(self, stores: Sequence[Table], kept: Sequence[RemovedSnapshot]) -> None:
        self._io = stores[0].io
        self._lists: set[str] = set()
        self._named: set[str] = set()
        self._manifests: dict[str, tuple[FileIO, ManifestFile]] = {}
        self._snapshots: dict[str, set[int]] = {}
        for store in stores:
            self.take(store)
        for one in kept:
            self._lists |= {opened_name(one.manifest_list)} if one.manifest_list is not None else set()
            for manifest in _manifests_that_stay(self._io, one):
                self._manifests[manifest.manifest_path] = (self._io, manifest)

    def names_of_new(self, store: Table) -> set[str]:
        """Take newer metadata of a store. Return the names of all files that it needs and that were not needed before."""
        new = self.take(store)
        live = {opened_name(path) for manifest in new for path, _, is_live in _entries(store.io, manifest) if is_live}
        return live | {opened_name(manifest.manifest_path) for manifest in new} | self._lists | self._named

    def take(self, store: Table) -> Sequence[ManifestFile]:
        """Keep what the metadata of a store names. Return its manifests that were not known yet."""
        metadata, new = store.metadata, list[ManifestFile]()
        self._lists |= {opened_name(one.manifest_list) for one in metadata.snapshots if one.manifest_list}
        self._named |= {opened_name(one.statistics_path) for one in (*metadata.statistics, *metadata.partition_statistics)}
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in self._seen(store):
                continue
            self._seen(store).add(snapshot.snapshot_id)
            for manifest in read_manifests(store.io, snapshot):
                if manifest.manifest_path not in self._manifests:
                    self._manifests[manifest.manifest_path] = (store.io, manifest)
                    new.append(manifest)
        return new

    def _seen(self, store: Table) -> set[int]:
        return self._snapshots.setdefault(str(store.metadata.table_uuid), set())

    def unreachable(self, removed: Sequence[RemovedSnapshot], statistics: Sequence[str]) -> Unreachable:
        """Return what only these removed snapshots reach.

        A list or a manifest of a removed snapshot that is absent was deleted by an earlier run, after everything that it names. What the
        table still needs must all be readable. Raises what a FileIO raises, StorageUnavailable and TableRefused.
        """
        kept = {opened_name(path) for path in self._manifests}
        found = Unreachable()
        gone: dict[str, ManifestFile] = {}
        leads: dict[str, set[str]] = {}
        for snapshot in removed:
            if snapshot.manifest_list is not None and opened_name(snapshot.manifest_list) in self._lists:
                continue
            manifests = _manifests_if_there(self._io, snapshot)
            if manifests is None:
                continue
            own = {one.manifest_path: one for one in manifests if opened_name(one.manifest_path) not in kept}
            gone |= own
            if snapshot.manifest_list is not None:
                leads[snapshot.manifest_list] = set(own)
        read = {path: _entries_if_there(self._io, manifest) for path, manifest in gone.items()}
        # A damaged manifest stays, and with it what it names, because its files are not known, and the list that leads to it.
        damaged = {path for path, entries in read.items() if entries is None}
        found.manifests = [path for path in read if path not in damaged]
        found.lists = [path for path, manifests in leads.items() if manifests.isdisjoint(damaged)]
        found.content = _content((entries for entries in read.values() if entries), self._manifests.values())
        found.statistics = [path for path in dict.fromkeys(statistics) if opened_name(path) not in self._named]
        return found


def _content(gone: Iterable[Sequence[_Entry]], kept: Iterable[tuple[FileIO, ManifestFile]]) -> dict[str, int]:
    """The files that these entries name and no live entry of a kept manifest names, with their sizes."""
    candidates: dict[str, list[tuple[str, int]]] = {}
    for path, size, _ in (entry for entries in gone for entry in entries):
        candidates.setdefault(opened_name(path), []).append((path, size))
    for io, manifest in kept:
        if not candidates:
            break
        for path, _, is_live in _entries(io, manifest):
            if is_live:
                candidates.pop(opened_name(path), None)
    return {path: size for files in candidates.values() for path, size in files}


def _entries_if_there(io: FileIO, manifest: ManifestFile) -> Sequence[_Entry] | None:
    """What a manifest of a removed snapshot names: nothing when it is gone, None when it is damaged."""
    try:
        return _entries(io, manifest)
    except FileNotFoundError:
        return ()
    except (StorageUnavailable, TableRefused) as error:
        _logger.warning("files of a removed snapshot stay: %s", error)
        return None


@looked_at_twice
def _entries(io: FileIO, manifest: ManifestFile) -> Sequence[_Entry]:
    """Every entry of a manifest, or an error."""
    with io.new_input(manifest.manifest_path).open() as stream:
        content = stream.read()
    with readable(f"manifest {manifest.manifest_path}"):
        found = [
            (entry.path, entry.file_size_bytes, entry.status != ManifestEntryStatus.DELETED) for entry in ManifestDecoder(content).entries()
        ]
    check_live_count(manifest, sum(is_live for _, _, is_live in found))
    return found


def _manifests_that_stay(io: FileIO, kept: RemovedSnapshot) -> Sequence[ManifestFile]:
    """The manifests of a removed snapshot whose files stay. Raises for a list that cannot be read, because it may name any file."""
    try:
        return read_manifests(io, as_snapshot(kept))
    except FileNotFoundError:
        # Without its list, nobody can register the snapshot again.
        return ()


def _manifests_if_there(io: FileIO, removed: RemovedSnapshot) -> Sequence[ManifestFile] | None:
    """The manifests of a removed snapshot: none when its list is gone, None when it is damaged."""
    try:
        return read_manifests(io, as_snapshot(removed))
    except FileNotFoundError:
        return ()
    except (StorageUnavailable, TableRefused) as error:
        _logger.warning("the files of removed snapshot %s stay: %s", removed.snapshot_id, error)
        return None


def as_snapshot(removed: RemovedSnapshot) -> Snapshot:
    """A removed snapshot as far as its manifests are found by it."""
    # The metadata that had this snapshot is gone. These are the fields by which its manifests are found.
    found = Snapshot(snapshot_id=removed.snapshot_id, timestamp_ms=0, manifest_list=removed.manifest_list or "")
    if removed.manifest_list is None:
        object.__setattr__(found, "manifest_list", None)
        found.inline_manifests = list(removed.manifests)  # type: ignore[attr-defined]
    return found
