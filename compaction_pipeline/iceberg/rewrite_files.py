"""Makes snapshots that PyIceberg cannot make: REPLACE, delete files, explicit data sequence numbers.

A `SnapshotChange` says what one snapshot adds and removes. `Transaction.stage` writes its manifests and its manifest list on top of the
metadata so far. `Transaction.commit` swaps the catalog's pointer once, for all staged snapshots. Nothing is registered with PyIceberg's own
transaction, because its retry does not validate.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from compaction_pipeline.core.dependencies.watermark import carried, rule_to_copy_by
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.properties import in_force
from compaction_pipeline.iceberg.deletions import delete_quietly, let_pyiceberg_ask
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.manifests.entries import CarriedFile, ManifestWriter, entry_of
from compaction_pipeline.iceberg.manifests.lists import write_manifests
from compaction_pipeline.iceberg.manifests.partitions import PartitionReader, partition_struct
from compaction_pipeline.iceberg.manifests.row_ids import with_row_ids
from compaction_pipeline.iceberg.upkeep.history import history_of

_ENTRIES_PER_MANIFEST = 20_000
"""A manifest then has about 8 MB, which is Iceberg's own target. Several manifests can be read in parallel."""

CommitStep = Literal[
    "before-load",
    "after-load",
    "after-validation",
    "before-manifest",
    "after-manifest",
    "before-manifest-list",
    "after-manifest-list",
    "before-swap",
    "after-swap",
]
"""The points of one attempt to commit, in their order. `on_step` is called at each; crash tests end the process there."""


@dataclass(frozen=True)
class AddedFile:
    """A file to add. If `sequence_number` is None, the data sequence number is that of the new snapshot."""

    file: DataFile
    sequence_number: int | None = None


@dataclass(frozen=True)
class SnapshotChange:
    """What one snapshot does. `removed` are files as the head lists them. Only the manifests of these files are written again."""

    operation: Operation
    added: Sequence[AddedFile] = ()
    removed: Sequence[LiveFile] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Making:
    """A snapshot that is being made on `parent`, which has these `manifests`. `writer` writes manifests of the new snapshot."""

    metadata: TableMetadata
    parent: Snapshot | None
    manifests: Sequence[ManifestFile]
    snapshot_id: int
    writer: ManifestWriter


Make = Callable[[Making], tuple[Sequence[ManifestFile], Summary]]
"""Writes manifests of a new snapshot. Returns all that the snapshot has, the kept ones included, and its summary."""


@dataclass(frozen=True)
class StagedSnapshot:
    """A snapshot whose manifests are written, but that no metadata names yet."""

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    manifests: tuple[ManifestFile, ...]
    written: tuple[str, ...]


def manifest_name(name: str, number: int) -> str:
    """The file name of a manifest. `name` tells which commit it belongs to."""
    return f"{name}-m{number}.avro"


def manifest_list_name(snapshot_id: int, attempt: int, name: str) -> str:
    """The file name of a manifest list, in Java's form. `name` tells which commit it belongs to."""
    return f"snap-{snapshot_id}-{attempt}-{name}.avro"


_LIST_NAME = re.compile(r"snap-\d+-\d+-(.+)\.avro")
_MANIFEST_NAME = re.compile(r"(.+)-\d+-[0-9a-f]{8}-m\d+\.avro")


def name_in(file_name: str) -> str | None:
    """The `name` in the file name of a manifest or a manifest list. None if the file name has another form."""
    match = _LIST_NAME.fullmatch(file_name) or _MANIFEST_NAME.fullmatch(file_name)
    return match[1] if match else None


class Transaction:
    """Snapshots of main on top of one loaded table. They are committed together or not at all, in one try.

    `name` becomes part of the names of written files. `reader` is what has read the head for this commit; it keeps what it
    has read. `on_step` is called before and after each file is written, and before and after the swap. With `watermarks_by` each
    snapshot says the watermarks that count at its parent: compactions and upkeep ask for it, and writers, who say their own, do not. It has
    the properties by which readers look for watermarks: in both stores of a keyed table those of the base store.
    """

    def __init__(
        self,
        table: Table,
        *,
        name: str | None = None,
        attempt: int = 0,
        reader: HeadReader | None = None,
        on_step: Callable[[CommitStep], None] = lambda step: None,
        watermarks_by: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        head = table.metadata.snapshot_by_name(MAIN_BRANCH)
        self.parent_id: int | None = head.snapshot_id if head else None
        self.name = name or str(uuid4())
        self._attempt = attempt
        # Two processes may commit one record, each as its first attempt, if one was thought dead. The token keeps them from overwriting or
        # deleting each other's manifests, which may be live.
        self._token = uuid4().hex[:8]
        self._reader = reader or HeadReader(table.io)
        self.on_step = on_step
        self._watermarks_by = watermarks_by
        self._updates: tuple[TableUpdate, ...] = ()
        self._requirements: tuple[TableRequirement, ...] = ()
        self._statistics: dict[str, None] = {}
        self._numbers = iter(range(1_000_000))
        # The live files of manifests that this transaction wrote, by path. An earlier snapshot of this transaction may have moved a file.
        self._moved: dict[str, str] = {}
        self.staged: list[StagedSnapshot] = []
        self.metadata: TableMetadata = table.metadata

    @property
    def table(self) -> Table:
        """The table that the snapshots are built on; `parent_id` is what main was then, None for a table without a snapshot."""
        return self._table

    @property
    def written(self) -> tuple[str, ...]:
        """Every manifest, manifest list and statistics file written so far."""
        return (*(path for staged in self.staged for path in staged.written), *self._statistics)

    def stage(self, change: SnapshotChange) -> StagedSnapshot:
        """Write the manifests of one more snapshot, on top of the staged ones. If this fails, the written files are deleted."""
        return self.stage_made(lambda making: self._made(change, making))

    def stage_made(self, make: Make) -> StagedSnapshot:
        """Stage the snapshot whose manifests `make` writes. If this fails, the written files are deleted."""
        written: list[str] = []
        try:
            staged = self._stage(make, written)
        except Exception:
            delete_quietly(self._table, written)
            raise
        self.staged.append(staged)
        self._updates += staged.updates
        self.metadata = update_table_metadata(self.metadata, staged.updates)
        return staged

    @contextmanager
    def dropped_on_failure(self) -> Iterator[None]:
        """Delete every file written so far when the block fails: no table names them."""
        try:
            yield
        except Exception:
            delete_quietly(self._table, self.written)
            raise

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table together with the staged snapshots."""
        if properties:
            self._updates += (SetPropertiesUpdate(updates=dict(properties)),)

    def remove_properties(self, keys: Sequence[str]) -> None:
        """Remove properties of the table together with the staged snapshots."""
        if keys:
            self._updates += (RemovePropertiesUpdate(removals=list(keys)),)

    def set_statistics(self, files: Iterable[StatisticsFile]) -> None:
        """Give staged snapshots these statistics files, in the same swap. Those of other snapshots stay."""
        for file in files:
            self._statistics[file.statistics_path] = None
            self._updates += (SetStatisticsUpdate(statistics=file),)

    def require(self, requirements: Iterable[TableRequirement]) -> None:
        """Demand more of the table than that its head is still the same."""
        self._requirements += tuple(requirements)

    def commit(self) -> None:
        """Swap the catalog's pointer.

        Raises CommitFailedException if it was certainly not swapped. After any other error the outcome is unknown.
        """
        head = self._table.metadata.refs.get(MAIN_BRANCH)
        requirements: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=self._table.metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id if head else None),
            *self._requirements,
        )
        self.on_step("before-swap")
        # `Transaction.commit_transaction` of PyIceberg retries without validating, so it is not used. `_do_commit` also follows
        # write.metadata.delete-after-commit.enabled.
        let_pyiceberg_ask(self._table)
        self._table._do_commit(updates=self._updates, requirements=requirements)
        if self.staged and self._table.metadata.snapshot_by_id(self.staged[-1].snapshot.snapshot_id) is None:
            # This happens, for example, when a redirect turns the POST into a GET.
            raise CommitStateUnknownException("the catalog reported success, but the metadata in its answer lacks the snapshot")
        self.on_step("after-swap")

    def _stage(self, make: Make, written: list[str]) -> StagedSnapshot:
        metadata = self.metadata
        io = self._table.io
        locations = load_location_provider(metadata.location, metadata.properties)
        parent = metadata.snapshot_by_name(MAIN_BRANCH)
        snapshot_id = metadata.new_snapshot_id()
        sequence_number = metadata.next_sequence_number() if metadata.format_version > 1 else 0

        def new_path() -> str:
            path = locations.new_metadata_location(manifest_name(f"{self.name}-{self._attempt}-{self._token}", next(self._numbers)))
            written.append(path)
            return path

        writer = ManifestWriter(io, metadata, snapshot_id, sequence_number, new_path)
        manifests, summary = make(Making(metadata, parent, self._manifests_of(parent), snapshot_id, writer))
        row_ids: dict[str, int] = {}
        if isinstance(metadata, TableMetadataV3):
            # Ids are given away although no new row needs them, as Iceberg's Java library does. They are never pinned to lower ones.
            first = metadata.next_row_id or 0
            manifests, behind = with_row_ids(manifests, first)
            row_ids = {"first_row_id": first, "added_rows": behind - first}
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            manifest_list=locations.new_metadata_location(manifest_list_name(snapshot_id, self._attempt, self.name)),
            sequence_number=sequence_number,
            # The time is never before that of the head: a reader that travels in time must see the snapshots in order.
            timestamp_ms=max(int(time.time() * 1000), parent.timestamp_ms if parent else 0),
            summary=summary if self._watermarks_by is None else self._with_watermarks(summary, parent, self._watermarks_by),
            schema_id=metadata.current_schema_id,
            **row_ids,
        )
        written.append(snapshot.manifest_list)
        self.on_step("before-manifest-list")
        write_manifests(io, metadata, snapshot, manifests)
        self.on_step("after-manifest-list")
        updates = (
            AddSnapshotUpdate(snapshot=snapshot),
            _main_at(snapshot_id, metadata),
        )
        return StagedSnapshot(snapshot, updates, tuple(manifests), tuple(written))

    def _with_watermarks(self, summary: Summary, parent: Snapshot | None, by: Mapping[str, str]) -> Summary:
        """The summary with the watermarks of the parent, of this very attempt. Nobody else says one in a snapshot of ours."""
        rule, own = (rule_to_copy_by(in_force(each, self._table.catalog.properties)) for each in (by, self._table.metadata.properties))
        found = carried(history_of(self.metadata), parent.snapshot_id if parent else None, rule)
        others = {key: text for key, text in summary.additional_properties.items() if key not in rule.all_keys | own.all_keys}
        return Summary(summary.operation, **{**others, **found})

    def _made(self, change: SnapshotChange, making: Making) -> tuple[Sequence[ManifestFile], Summary]:
        kept, groups, removed = self._entries_after(change, making.manifests, making.snapshot_id)
        manifests = [*self._written_groups(making.writer, groups), *kept]
        return manifests, summary_of(change, removed, making.parent, self._changed_partitions(change))

    def _entries_after(
        self, change: SnapshotChange, inherited: Sequence[ManifestFile], snapshot_id: int
    ) -> tuple[Sequence[ManifestFile], Mapping[tuple[ManifestContent, int], list[ManifestEntry]], Sequence[DataFile | CarriedFile]]:
        """The manifests that stay, the entries to write (by content and partition spec), and the files that are removed."""
        going_from: dict[str, set[str]] = defaultdict(set)
        for file in change.removed:
            going_from[self._moved.get(file.path, file.manifest_path)].add(file.path)
        kept, touched = _kept_and_touched(inherited, going_from)
        removed: list[DataFile | CarriedFile] = []
        groups: dict[tuple[ManifestContent, int], list[ManifestEntry]] = defaultdict(list)
        for added in change.added:
            content = ManifestContent.DATA if added.file.content == DataFileContent.DATA else ManifestContent.DELETES
            groups[content, added.file.spec_id].append(
                entry_of(ManifestEntryStatus.ADDED, snapshot_id, added.sequence_number, None, added.file)
            )
        for manifest in touched:
            paths = going_from[manifest.manifest_path]
            for entry in self._reader.entries(manifest):
                going = entry.data_file.file_path in paths
                # A removed file stays visible as DELETED with our snapshot id, so that a row delta that began before this commit fails.
                groups[manifest.content, manifest.partition_spec_id].append(
                    entry_of(
                        ManifestEntryStatus.DELETED if going else ManifestEntryStatus.EXISTING,
                        snapshot_id if going else entry.snapshot_id,
                        entry.sequence_number,
                        entry.file_sequence_number,
                        entry.data_file,
                    )
                )
                if going:
                    removed.append(entry.data_file)
                    paths.discard(entry.data_file.file_path)
            if paths:
                raise ValueError(f"{manifest.manifest_path} does not list {min(paths)} as live: read the table again")
        return kept, groups, removed

    def _written_groups(
        self, writer: ManifestWriter, groups: Mapping[tuple[ManifestContent, int], list[ManifestEntry]]
    ) -> Sequence[ManifestFile]:
        """Write manifests of these entries, and note which manifest each live file moved to."""
        manifests = []
        for (content, spec_id), entries in groups.items():
            for start in range(0, len(entries), _ENTRIES_PER_MANIFEST):
                self.on_step("before-manifest")
                part = entries[start : start + _ENTRIES_PER_MANIFEST]
                manifest = writer.write(content, spec_id, part)
                manifests.append(manifest)
                for entry in part:
                    if entry.status != ManifestEntryStatus.DELETED:
                        self._moved[entry.data_file.file_path] = manifest.manifest_path
                self.on_step("after-manifest")
        return manifests

    def _changed_partitions(self, change: SnapshotChange) -> int:
        changed = {(file.spec_id, repr(file.partition)) for file in change.removed}
        readers = {
            spec_id: PartitionReader(partition_struct(self.metadata, spec_id)) for spec_id in {one.file.spec_id for one in change.added}
        }
        changed |= {(one.file.spec_id, repr(readers[one.file.spec_id].read(one.file.partition))) for one in change.added}
        return len(changed)

    def _manifests_of(self, parent: Snapshot | None) -> Sequence[ManifestFile]:
        if self.staged:
            return self.staged[-1].manifests
        return self._reader.manifests(parent) if parent else ()


def _main_at(snapshot_id: int, metadata: TableMetadata) -> SetSnapshotRefUpdate:
    # A ref update replaces the whole ref. Without these three values, main would lose its retention settings.
    main = metadata.refs.get(MAIN_BRANCH)
    return SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=main.max_ref_age_ms if main else None,
        max_snapshot_age_ms=main.max_snapshot_age_ms if main else None,
        min_snapshots_to_keep=main.min_snapshots_to_keep if main else None,
    )


def _kept_and_touched(manifests: Sequence[ManifestFile], removed: Mapping[str, set[str]]) -> tuple[list[ManifestFile], list[ManifestFile]]:
    kept, touched = [], []
    for manifest in manifests:
        if manifest.manifest_path in removed:
            touched.append(manifest)
        elif manifest.has_added_files() or manifest.has_existing_files():
            # A manifest without live entries only tells what an older snapshot removed. The new list does not need it.
            kept.append(manifest)
    missing = set(removed) - {manifest.manifest_path for manifest in touched}
    if missing:
        raise ValueError(f"manifest {min(missing)} is not in the snapshot that the change is made on: read the table again")
    return kept, touched


_KINDS: Mapping[DataFileContent, tuple[str, str, str]] = {
    DataFileContent.DATA: ("data-files", "records", ""),
    DataFileContent.POSITION_DELETES: ("delete-files", "position-deletes", "position-delete-files"),
    DataFileContent.EQUALITY_DELETES: ("delete-files", "equality-deletes", "equality-delete-files"),
}


def summary_of(
    change: SnapshotChange, removed: Sequence[DataFile | CarriedFile], parent: Snapshot | None, changed_partitions: int
) -> Summary:
    """The summary as Java makes it: counts of added and removed files, and totals that continue those of the parent."""
    counts: dict[str, int] = defaultdict(int)
    totals: dict[str, int] = defaultdict(int)
    for sign, files in ((1, [added.file for added in change.added]), (-1, removed)):
        for file in files:
            plural, rows, kind = _KINDS[file.content]
            verb = "added" if sign > 0 else "deleted" if file.content == DataFileContent.DATA else "removed"
            counts[f"{verb}-{plural}"] += 1
            counts[f"{verb}-{rows}"] += file.record_count
            if kind:
                counts[f"{verb}-{kind}"] += 1
            counts["added-files-size" if sign > 0 else "removed-files-size"] += file.file_size_in_bytes
            totals[f"total-{plural}"] += sign
            totals[f"total-{rows}"] += sign * file.record_count
            totals["total-files-size"] += sign * file.file_size_in_bytes
    texts = {key: str(value) for key, value in counts.items() if value}
    texts["changed-partition-count"] = str(changed_partitions)
    previous = parent.summary.additional_properties if parent and parent.summary else None
    for key in _TOTALS:
        before = "0" if parent is None else (previous or {}).get(key)
        # If the parent does not tell its total, ours is unknown, as in Java.
        if before is not None and before.lstrip("-").isdigit() and int(before) + totals[key] >= 0:
            texts[key] = str(int(before) + totals[key])
    return Summary(change.operation, **{**texts, **change.properties})


_TOTALS = (
    "total-data-files",
    "total-delete-files",
    "total-records",
    "total-files-size",
    "total-position-deletes",
    "total-equality-deletes",
)
