"""What the search for orphan files remembers. `storage/orphans.py` fulfils it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import OrphanDeletion, OrphanLook, Place


class OrphanStore(Protocol):
    """The stored looks, deletions and places."""

    def save_look(self, look: OrphanLook) -> None:
        """Insert a look, or replace the look at the same table that has the same time."""

    def looks(self, table: TableIdentifier) -> Sequence[OrphanLook]:
        """Return the looks at a table, newest first."""

    def newest_look(self, table: TableIdentifier) -> tuple[datetime, bool] | None:
        """Return the time of the newest look at a table, and whether it is done. None without a look. No list of files is read."""

    def save_deletion(self, deletion: OrphanDeletion) -> None:
        """Insert or replace a deletion."""

    def deletions(self, table: TableIdentifier | None = None, limit: int | None = None) -> Sequence[OrphanDeletion]:
        """Return the deletions, or those of a table, newest first, at most `limit`."""

    def expire(self, looks_before: datetime, deletions_before: datetime) -> None:
        """Remove the looks and the deletions that are older than these times."""

    def places(self) -> Sequence[Place]:
        """Return every place where a table was ever seen, sorted."""

    def save_place(self, place: Place) -> None:
        """Store a place. One of the same table, uuid and location is replaced."""

    def forget_place(self, place: Place) -> None:
        """Remove a place, because a person says that the table is gone, with its files."""
