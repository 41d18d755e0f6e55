"""Keeps what was read of the manifests of keyed tables, so that a look reads only the manifests that are new.

A manifest never changes, so what was read of it stays right. It is kept under everything that its manifest list says of it, the uuid of its
table, and the partition type that its values were read with: another table, another file of the same name, or a column that was promoted
is read anew. Each look reads the manifest lists of its own two heads, and takes no file from anywhere else. So it is one whole snapshot of
each store, also after a rollback. What the heads no longer list is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import TransactionSpan
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry
from compaction_pipeline.iceberg.keyed.row_spans import span_in_file, span_of_entry
from compaction_pipeline.iceberg.manifests.live_files import read_live_entries
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.scan import manifests_of

MOST_FILES = 200_000
"""A process keeps at most this many live files, of all keyed tables together: about 100 MB."""
_BOUNDS_OF_PARTITIONS = 13
"""The slot of a `ManifestFile` that only bounds its partitions. Writers of manifest lists may cut it, and nothing is made of it."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a manifest.

    `spans` has the bounds of the transactions of files whose entries tell them. `boundless` are the files whose entries have no bounds at
    all. `opened` has what was found in files that had to be opened.
    """

    files: tuple[LiveFile, ...]
    spans: Mapping[str, TransactionSpan]
    boundless: frozenset[str]
    opened: dict[str, TransactionSpan | None] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """How much it counts towards `MOST_FILES`. A manifest without live files takes memory too."""
        return len(self.files) + 1


class KeptManifests:
    """What was read of manifests at the last look at each keyed table. Threads may share an instance."""

    def __init__(self, most_files: int = MOST_FILES) -> None:
        self._most = most_files
        # By the uuids of the two stores; the table of the last look is the last one.
        self._tables: OrderedDict[tuple[str, str], Mapping[Hashable, _Read]] = OrderedDict()
        self._lock = Lock()

    @property
    def files(self) -> int:
        """How many files are kept, as `MOST_FILES` counts them."""
        return sum(read.weight for kept in self._tables.values() for read in kept.values())

    @contextmanager
    def look(self, change: Table, base: Table) -> Iterator[Look]:
        """One look at a keyed table. What it has read is kept, and nothing else of the table.

        So it is for a table that is refused, because it is looked at again and again. After another error, what was known stays.
        """
        table = (str(change.metadata.table_uuid), str(base.metadata.table_uuid))
        with self._lock:
            known = self._tables.get(table, {})
        look = Look(change, known)
        try:
            yield look
        except TableRefused:
            self._keep(table, look.read)
            raise
        self._keep(table, look.read)

    def _keep(self, table: tuple[str, str], read: Mapping[Hashable, _Read]) -> None:
        kept, weight = {}, 0
        for key, each in read.items():
            # Of a table that is too large, a part is kept. To keep the newest part would forget each manifest just before it is needed.
            if weight + each.weight <= self._most:
                kept[key] = each
                weight += each.weight
        with self._lock:
            self._tables.pop(table, None)
            self._tables[table] = kept
            while self.files > self._most:
                self._tables.popitem(last=False)


kept_manifests = KeptManifests()
"""What this process keeps. Each tick has services of its own, and they all look at the same tables."""


class Look:
    """One look at a keyed table. `read` is what it has read of manifests, or found among what was `known`."""

    def __init__(self, change: Table, known: Mapping[Hashable, _Read]) -> None:
        self._change = change
        self._known = known
        self._changes: list[_Read] = []
        self._types: dict[tuple[str, int], str] = {}
        self.read: dict[Hashable, _Read] = {}

    def files(self, store: Table, snapshot: Snapshot | None) -> Iterator[LiveFile]:
        """The live files of a snapshot of a store; none without a snapshot. Raises as `read_live_files` does."""
        manifests = manifests_of(snapshot, store.io) if snapshot is not None else ()
        found = [self._found(store, manifest) for manifest in manifests]
        if store is self._change:
            self._changes = found
        return (file for read in found for file in read.files)

    def row_spans(self) -> dict[str, TransactionSpan]:
        """The paths of those change files that tell the transaction of each row, and the bounds of these transactions. The change files are
        those that `files` has given.

        A file without bounds in its manifest entry is opened when the entry has no bounds at all, or when nothing says that a writer of
        changes appended it.
        """
        snapshots = self._change.metadata.snapshots
        appended = {each.snapshot_id for each in snapshots if each.summary is not None and each.summary.operation is Operation.APPEND}
        spans: dict[str, TransactionSpan] = {}
        for read in self._changes:
            spans.update(read.spans)
            for file in read.files:
                if file.is_data and file.path not in read.spans and (file.added_snapshot_id not in appended or file.path in read.boundless):
                    if file.path not in read.opened:
                        read.opened[file.path] = span_in_file(self._change.io, file.path)
                    span = read.opened[file.path]
                    if span is not None:
                        spans[file.path] = span
        return spans

    def _found(self, store: Table, manifest: ManifestFile) -> _Read:
        key = self._key(store.metadata, manifest)
        read = self.read.get(key) or self._known.get(key) or self._anew(store, manifest)
        self.read[key] = read
        return read

    def _key(self, metadata: TableMetadata, manifest: ManifestFile) -> Hashable:
        uuid, spec_id = str(metadata.table_uuid), manifest.partition_spec_id
        kind = self._types.get((uuid, spec_id))
        if kind is None:
            # A reader refuses a manifest of an unknown spec if it has live files.
            kind = self._types[uuid, spec_id] = str(partition_struct(metadata, spec_id)) if spec_id in metadata.specs() else ""
        return (uuid, kind, manifest.key_metadata, *(manifest[slot] for slot in range(_BOUNDS_OF_PARTITIONS)))

    def _anew(self, store: Table, manifest: ManifestFile) -> _Read:
        # Only change files tell transactions. To decode the bounds of all other files would take as long as everything else.
        with_bounds = store is self._change and manifest.content == ManifestContent.DATA
        entries = read_live_entries(store.io, store.metadata, manifest, _what_is_kept, with_bounds=with_bounds)
        return _Read(
            tuple(file for file, _, _ in entries),
            {file.path: span for file, span, _ in entries if span is not None},
            frozenset(file.path for file, _, has_bounds in entries if with_bounds and not has_bounds),
        )


def _what_is_kept(file: LiveFile, entry: DecodedEntry) -> tuple[LiveFile, TransactionSpan | None, bool]:
    return file, span_of_entry(entry), bool(entry.lower_bounds)
