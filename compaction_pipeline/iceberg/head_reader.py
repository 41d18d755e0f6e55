"""Reads the files of a snapshot for one commit. Manifests never change, so each is read only once for all attempts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.commit.head import HeadLayout
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.iceberg.manifests.entries import read_entries
from compaction_pipeline.iceberg.manifests.live_files import read_live_files
from compaction_pipeline.iceberg.opened_paths import opened_name
from compaction_pipeline.iceberg.scan import manifests_of, unpartitioned_spec_ids


@dataclass
class KnownManifests:
    """What one commit has read of manifests, by their paths: their live files, and their live entries."""

    files: dict[str, tuple[LiveFile, ...]] = field(default_factory=dict)
    entries: dict[str, Sequence[ManifestEntry]] = field(default_factory=dict)


class HeadReader:
    """Reads live files and entries with one FileIO, and no manifest again that is in `known`.

    Which manifests the last snapshot has is remembered by the id of that snapshot, because a snapshot of format v1 may have no list of
    manifests. An attempt that did not see the files of the writer that won a race would drop them.
    """

    def __init__(self, io: FileIO, known: KnownManifests | None = None) -> None:
        self._io = io
        self._known = known or KnownManifests()
        self._listed: dict[int, Sequence[ManifestFile]] = {}

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """The manifests of a snapshot."""
        if snapshot.snapshot_id not in self._listed:
            self._listed = {snapshot.snapshot_id: manifests_of(snapshot, self._io)}
        return self._listed[snapshot.snapshot_id]

    def live_files(self, metadata: TableMetadata, snapshot: Snapshot | None) -> tuple[LiveFile, ...]:
        """Every live file of a snapshot. Raises TableRefused for a file that we do not compact."""
        if snapshot is None:
            return ()
        manifests = self.manifests(snapshot)
        # Manifests that the head no longer lists would only take memory.
        current = {manifest.manifest_path for manifest in manifests}
        files = {path: files for path, files in self._known.files.items() if path in current}
        self._known.files = files
        for manifest in manifests:
            if manifest.manifest_path not in files:
                files[manifest.manifest_path] = tuple(read_live_files(self._io, metadata, manifest))
        return tuple(file for manifest in manifests for file in files[manifest.manifest_path])

    def entries(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """The live entries of a manifest, with everything that a rewrite must carry over."""
        if manifest.manifest_path not in self._known.entries:
            self._known.entries[manifest.manifest_path] = read_entries(self._io, manifest)
        return self._known.entries[manifest.manifest_path]


def head_layout(metadata: TableMetadata) -> HeadLayout:
    """What the rules of a commit need to know of the metadata."""
    return HeadLayout(
        unpartitioned_spec_ids=unpartitioned_spec_ids(metadata),
        field_ids={schema.schema_id: frozenset(schema.field_ids) for schema in metadata.schemas},
        last_sequence_number=0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number,
    )


def listed_metadata(io: FileIO, metadata: TableMetadata, names: Iterable[str]) -> frozenset[str]:
    """Those of these names that are of a manifest list, a manifest or a statistics file of any snapshot. The names are `opened_name`s,
    because one file may have several paths."""
    wanted = set(names)
    found = {opened_name(snapshot.manifest_list) for snapshot in metadata.snapshots if snapshot.manifest_list} & wanted
    found |= {opened_name(file.statistics_path) for file in metadata.statistics} & wanted
    for snapshot in reversed(metadata.snapshots):
        if found == wanted:
            break
        found |= wanted & {opened_name(manifest.manifest_path) for manifest in manifests_of(snapshot, io)}
    return frozenset(found)


def listed_paths(io: FileIO, metadata: TableMetadata, paths: Iterable[str]) -> Mapping[str, str]:
    """Those of `paths` that a manifest of any snapshot lists, DELETED entries included; each with the path of that manifest.

    The names of what a FileIO opens are compared, and ours are unique. One file may have several paths.
    """
    wanted: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        wanted[opened_name(path)].append(path)
    found: dict[str, str] = {}
    seen: set[str] = set()
    for snapshot in reversed(metadata.snapshots):
        if not wanted:
            break
        for manifest in manifests_of(snapshot, io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            for entry in read_entries(io, manifest, live_only=False):
                for path in wanted.pop(opened_name(entry.data_file.file_path), ()):
                    found[path] = manifest.manifest_path
    return found
