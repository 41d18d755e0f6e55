"""What is stored of the search for orphan files: each look, each batch of deletions, and the places where tables were ever seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, OrphanList
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.words import bytes_text, count_text

LOOKS_KEPT = timedelta(days=7)
"""An older look says nothing about files of today, and a table that is looked at each day needs no older one."""
DELETIONS_KEPT = timedelta(days=30)
"""As long as records of commits, so that a person can look into last month's events."""
MOST_STORED = 100_000
"""Files of one look that are stored. The next looks find the others, when these are gone."""


@dataclass(frozen=True, slots=True)
class OrphanLook:
    """One look at a table, by the uuids and locations of its stores. `found` is empty when the look was refused.

    `is_done` says that what this look confirmed is deleted, or that nothing was.
    """

    table: TableIdentifier
    stores: tuple[tuple[str, str], ...]
    found: OrphanList
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class OrphanDeletion:
    """One batch of deletions. It is stored before the first file goes, and again with what came of it.

    `failed` has the error of each file that is still there, or may be. Without `ended_at`, the process was killed, or is at work: each of
    the files may be gone or not.
    """

    record_id: RecordId
    table: TableIdentifier
    created_at: datetime
    files: tuple[ListedFile, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    ended_at: datetime | None = None

    @property
    def store(self) -> TableIdentifier:
        """The name that users give: files of both stores of a keyed table go together."""
        return self.table

    @property
    def work(self) -> UpkeepWork:
        """The kind of work."""
        return UpkeepWork.ORPHAN_FILES

    @property
    def status(self) -> UpkeepStatus:
        """OPEN, or DONE when it has ended."""
        return UpkeepStatus.OPEN if self.ended_at is None else UpkeepStatus.DONE

    @property
    def deleted(self) -> tuple[ListedFile, ...]:
        """The files that are gone; none while that is not known."""
        return () if self.ended_at is None else tuple(file for file in self.files if file.path not in self.failed)

    @property
    def summary(self) -> str:
        """What became of it, as a sentence."""
        if self.ended_at is None:
            return f"{count_text(len(self.files), 'orphan file')} may be deleted: the process has not said how it ended"
        text = f"{count_text(len(self.deleted), 'orphan file')} deleted ({bytes_text(sum(file.size_bytes for file in self.deleted))})"
        if not self.failed:
            return text
        path, error = next(iter(self.failed.items()))
        return f"{text}; {count_text(len(self.failed), 'file')} cannot be deleted, e.g. {path}: {error}"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What one run did to a table. `found` is the last look of this run; None when it did not look.

    `refusals` say why nothing may be deleted. `deletions` are the batches, and `problem` says why there are not more of them.
    """

    table: TableIdentifier
    found: OrphanDecision | None = None
    refusals: tuple[str, ...] = ()
    deletions: tuple[OrphanDeletion, ...] = ()
    problem: str | None = None

    @property
    def stored_bytes(self) -> int | None:
        """The bytes of all listed files that are still there, live or not; None when this run did not look."""
        if self.found is None:
            return None
        listed = sum(total.size_bytes for total in self.found.totals.values())
        return listed - sum(file.size_bytes for deletion in self.deletions for file in deletion.deleted)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table was seen once: it counts for ever, whatever became of the table.

    `roots` are folders outside its own in which it ever named files: all that was read until `read_at`, when the newest metadata was that
    at `metadata_location`. Without `read_at`, only live files were indexed, as of that metadata; without both, nothing was read.
    """

    table: TableIdentifier
    table_uuid: str
    location: str
    roots: tuple[str, ...] = ()
    metadata_location: str | None = None
    read_at: datetime | None = None

    @property
    def is_unread(self) -> bool:
        """Whether nobody ever read where the table names files."""
        return self.read_at is None and self.metadata_location is None
