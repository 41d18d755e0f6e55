"""UpkeepRecords: each says which snapshots one expiry removed from one store of a table, and what became of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.words import bytes_text, count_text


class UpkeepStatus(str, Enum):
    """How far an expiry has come."""

    OPEN = "OPEN"
    """The record was written before the catalog was asked, and the catalog has not answered yet."""
    UNKNOWN = "UNKNOWN"
    """The catalog did not answer, or its answer does not tell. A later look at the table finds out."""
    REMOVED = "REMOVED"
    """The snapshots are gone from the metadata, and their files wait for the end of the grace time."""
    KEPT = "KEPT"
    """The snapshots are gone from the metadata, and their files stay for ever: a tag was dropped with one of them, nobody can tell whether
    one was, or the catalog lets nobody but itself delete files."""
    DONE = "DONE"
    """The files that nothing needs any more are gone too."""
    FAILED = "FAILED"
    """Nothing was removed."""


@dataclass(frozen=True, slots=True)
class RemovedSnapshot:
    """A snapshot that goes, with what leads to its files: its list of manifests, or in old tables of format v1 the manifests themselves."""

    snapshot_id: int
    manifest_list: str | None
    manifests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """What was deleted, and what was kept although no snapshot needs it. Bytes are those of data and delete files, as manifests say."""

    content_files: int = 0
    content_bytes: int = 0
    manifests: int = 0
    manifest_lists: int = 0
    statistics_files: int = 0
    kept_elsewhere: int = 0
    """Files that another table has or may have, such as those outside the folders of this table."""

    @property
    def files(self) -> int:
        """All deleted files."""
        return self.content_files + self.manifests + self.manifest_lists + self.statistics_files

    def __add__(self, other: DeletedFiles) -> DeletedFiles:
        return self._with(other, lambda one, another: one + another)

    def again(self, other: DeletedFiles) -> DeletedFiles:
        """What two runs over the same files did. The second one counts files that the first one has deleted once more."""
        return self._with(other, max)

    def _with(self, other: DeletedFiles, of: Callable[[int, int], int]) -> DeletedFiles:
        return DeletedFiles(*(of(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class UpkeepRecord:
    """One expiry of one store. `table` is the name that users give, and `store` that of the Iceberg table: the change store of a keyed
    table has a name of its own.

    `removed` and `statistics` (paths of statistics files) are written before the catalog is asked. So whoever finds the record after a
    crash can find the files. `kept` counts the snapshots that stayed. `base_known` says that the answer told on which metadata the removal
    was made; without that, nobody knows yet whether a new tag was dropped with the snapshots.
    """

    record_id: RecordId
    table: TableIdentifier
    store: TableIdentifier
    table_uuid: str
    status: UpkeepStatus
    created_at: datetime
    removed: tuple[RemovedSnapshot, ...]
    dropped_refs: Mapping[str, str] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    kept: int = 0
    base_known: bool = False
    removed_at: datetime | None = None
    ended_at: datetime | None = None
    deleted: DeletedFiles = DeletedFiles()
    reason: str | None = None

    @property
    def work(self) -> UpkeepWork:
        """The kind of work."""
        return UpkeepWork.SNAPSHOTS

    @property
    def summary(self) -> str:
        """What became of it, as a sentence."""
        counted = count_text(len(self.removed), "snapshot")
        if self.status is UpkeepStatus.FAILED:
            return f"nothing was removed: {self.reason}"
        if self.status in (UpkeepStatus.OPEN, UpkeepStatus.UNKNOWN):
            return f"it is not known whether {counted} left the metadata: {self.reason or 'the catalog has not answered yet'}"
        refs = f" and {count_text(len(self.dropped_refs), 'ref')}" if self.dropped_refs else ""
        text = f"{counted}{refs} removed, {self.kept:,} kept"
        if self.status is UpkeepStatus.KEPT:
            return f"{text}; their files stay: {self.reason}"
        if self.status is UpkeepStatus.REMOVED:
            return f"{text}; their files wait" + (f": {self.reason}" if self.reason else "")
        gone = f"{count_text(self.deleted.files, 'file')} deleted ({bytes_text(self.deleted.content_bytes)} of data and deletes)"
        return f"{text}; {gone}" + (f"; {self.reason}" if self.reason else "")


UNSETTLED = frozenset({UpkeepStatus.OPEN, UpkeepStatus.UNKNOWN})
"""States in which it is not known whether the metadata changed."""
ENDED = frozenset({UpkeepStatus.DONE, UpkeepStatus.FAILED})
"""States that do not change any more."""


def given_up(record: UpkeepRecord, why: str, now: datetime) -> UpkeepRecord:
    """The record of a table that is gone. Its files stay, and nobody looks for them any more.

    As long as nobody knows whether a tag was dropped with the snapshots, what they need must stay even when the table comes back.
    """
    if record.status in UNSETTLED or not record.base_known:
        return replace(record, status=UpkeepStatus.KEPT, reason=f"{why}, and nobody can tell whether a tag was dropped with the snapshots")
    return replace(record, status=UpkeepStatus.DONE, reason=f"{why}, so the files stay", ended_at=now)


def files_due_at(record: UpkeepRecord, grace: timedelta) -> datetime | None:
    """The time from which the files of a record may be deleted; None while its snapshots are not known to be gone, and after its end."""
    if record.status is not UpkeepStatus.REMOVED or record.removed_at is None:
        return None
    return record.removed_at + grace
