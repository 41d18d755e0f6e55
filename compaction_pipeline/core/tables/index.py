"""What is known of a table's files: nothing, a part of them, one whole snapshot, or the reason why they are not read.

Only `Complete` names a snapshot, so a plan can be made from nothing else. A table leaves `Complete` before its first indexed file
changes. A process that is killed in between leaves a table that is read again, never one that is planned from a mixture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import MetadataFigures
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.sort_order import order_of_full
from compaction_pipeline.core.tables.table import ChangeHead, ManifestRef, TableHead, TableIdentifier, TableLayout

NO_SNAPSHOT = 0
"""Stands for the snapshot of a keyed table whose base store has none yet, while its change store has files."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as the newest metadata that was loaded describes it."""

    table_uuid: str
    layout: TableLayout


@dataclass(frozen=True, slots=True)
class WholeRead:
    """A moment at which the index was exactly one snapshot; `snapshot_id` is None for a table that had no snapshot."""

    snapshot_id: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Unread:
    """A catalog lists the table, and nothing of it was read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The indexed files are not those of one snapshot: they are being read, or the process that read them has ended.

    `property_problem` says which property of the table breaks its rule.
    """

    loaded: LoadedTable
    property_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """The indexed files are exactly those of one snapshot.

    `metadata_location` is the place of the metadata that was read. No two reads have the same `read_id`. `landed` says how
    many of our commits the read knew of: a table with more of them is read again. `property_problem` says which property of the
    table breaks its rule.
    """

    loaded: LoadedTable
    snapshot_id: int
    sequence_number: int
    metadata_location: str
    read_id: str
    read_at: datetime
    landed: int = 0
    property_problem: str | None = None
    change_store: ChangeHead | None = None
    """The head of the change store of a keyed table, as it was then. The other fields are those of the base store."""

    def is_same_read(self, other: Complete | Empty | None) -> bool:
        """Return whether the other one describes the same files. Properties, schemas and specs may differ."""
        return isinstance(other, Complete) and self.read_id == other.read_id

    def files_of(self, table: TableIdentifier, files: Iterable[LiveFile]) -> TableFiles:
        """Return files of the index as the planner takes them."""
        layout = self.loaded.layout
        return TableFiles(
            table,
            self.loaded.table_uuid,
            self.snapshot_id,
            self.sequence_number,
            layout.format_version,
            layout.schema_id,
            layout.default_spec_id,
            layout.unpartitioned_spec_ids,
            tuple(files),
            order_of_full(layout),
        )


@dataclass(frozen=True, slots=True)
class Empty:
    """The table has no snapshot, so it has no file. The fields mean what they mean in `Complete`."""

    loaded: LoadedTable
    metadata_location: str
    read_id: str
    read_at: datetime
    landed: int = 0
    property_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The table is of a kind that is never compacted. `metadata_location` is None when the metadata could not even be loaded."""

    reason: str
    loaded: LoadedTable | None = None
    metadata_location: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The last look at the table failed. It is read again at the next one."""

    problem: str
    loaded: LoadedTable | None = None


IndexState = Unread | Reading | Complete | Empty | Refused | Failed


@dataclass(frozen=True, slots=True)
class TableIndex:
    """What is known of a table's head and of its indexed files. Only `services/tables/refresh_files.py` writes it.

    `earlier` is the last whole read before the present state. `last_old_spec_delete_at` is when a delete file whose partition spec was
    not the current one was last committed (see `last_old_spec_delete`). `warning` is something that a person should know, although it
    stops nothing.
    """

    table: TableIdentifier
    state: IndexState = Unread()
    earlier: WholeRead | None = None
    last_old_spec_delete_at: datetime | None = None
    warning: str | None = None
    metadata: MetadataFigures | None = None
    """The figures of the metadata of the newest whole read; None before the first, and of one by an older version of this program."""

    @property
    def loaded(self) -> LoadedTable | None:
        """The table as the newest metadata that was loaded describes it; None while none was."""
        return None if isinstance(self.state, Unread) else self.state.loaded

    @property
    def layout(self) -> TableLayout | None:
        """The layout of the newest metadata that was loaded; None while none was."""
        return self.loaded.layout if self.loaded is not None else None

    @property
    def last_read(self) -> WholeRead | None:
        """The newest whole read, whatever came after it."""
        if isinstance(self.state, Complete):
            return WholeRead(self.state.snapshot_id, self.state.read_at)
        return WholeRead(None, self.state.read_at) if isinstance(self.state, Empty) else self.earlier

    @property
    def last_snapshot_id(self) -> int | None:
        """The snapshot of the newest whole read; None before the first, and for a table that had no snapshot."""
        return self.last_read.snapshot_id if self.last_read is not None else None

    @property
    def refusal(self) -> str | None:
        """Why the table is never compacted; None for one that may be."""
        return self.state.reason if isinstance(self.state, Refused) else None

    @property
    def problem(self) -> str | None:
        """What somebody must correct before the table is planned: the last look failed, or a property breaks its rule."""
        if isinstance(self.state, Failed):
            return self.state.problem
        return self.state.property_problem if isinstance(self.state, (Reading, Complete, Empty)) else None

    def turned(self, state: IndexState) -> TableIndex:
        """Return the index in another state. It still knows the last whole read."""
        return replace(self, state=state, earlier=None if isinstance(state, (Complete, Empty)) else self.last_read)

    def failed(self, problem: str) -> TableIndex:
        """Return the index after a look that failed. A refused table stays refused, because a failed look says nothing about that."""
        return self if isinstance(self.state, Refused) else self.turned(Failed(problem, self.loaded))


def measures_differ(known: TableLayout | None, now: TableLayout) -> bool:
    """Return whether unchanged files must be counted again, because other sizes count as small now, other deletes as global, or other
    columns as sorted."""
    return known is not None and (
        known.properties != now.properties
        or known.unpartitioned_spec_ids != now.unpartitioned_spec_ids
        or known.default_sort_order_id != now.default_sort_order_id
    )


def last_old_spec_delete(index: TableIndex, head: TableHead, added: Iterable[ManifestRef], now: datetime) -> datetime | None:
    """Return when a delete of an old partition spec was last committed; None when `index` and the `added` manifests show none.

    A delete counts as committed `now` when the time of its commit is unknown.

    A change of the table's spec counts as such a delete, because writers that started before it may still run. A first look does not
    know when the spec changed, so any file of an old spec counts.
    """
    committed_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in head.ancestors}
    old = [manifest for manifest in added if manifest.spec_id != head.layout.default_spec_id]
    moments = [index.last_old_spec_delete_at] if index.last_old_spec_delete_at is not None else []
    for manifest in old:
        if manifest.content == "DELETES":
            ms = committed_ms.get(manifest.added_snapshot_id)
            moments.append(now if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc))
    evolved = index.layout is not None and index.layout.default_spec_id != head.layout.default_spec_id
    if evolved or (old and index.last_snapshot_id is None and head.layout.format_version > 1):
        moments.append(now)
    return max(moments, default=None)
