"""Finds out whether a table was known under another name, and takes what is known of it along.

The uuid in the metadata tells tables apart, never the name alone. What is known of one table never goes to another: two tables may swap
their names, and then the files of one would be judged by the history of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum

from compaction_pipeline.core.errors import CompactionError, NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.names import commit_lease, plan_lease, refresh_lease, upkeep_lease
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.tables.ports.listings import MoveStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier

log = logging.getLogger(__name__)

_WORK: tuple[Callable[[object], str], ...] = (plan_lease, commit_lease, upkeep_lease)
"""Who plans a table, commits to it or deletes its files stores what came of it under its name."""


class Followed(Enum):
    """What came of following a table to its present name."""

    SAME = "it has the name under which it is known, or is new"
    MOVED = "what is known of it has come along"
    BUSY = "somebody works on one of the names, so it is done later"


class FollowNames:
    """Two verbs: follow, for a table that is known, and find_again, for one that had vanished."""

    def __init__(self, reader: TableReader, moves: MoveStore, scan: TableScan, leases: HeldLeases) -> None:
        self._reader = reader
        self._moves = moves
        self._scan = scan
        self._leases = leases

    def follow(self, known: KnownTable, head: TableHead) -> Followed:
        """Take along what is known of the table of this head under another name. `known` is what is known under its present name.

        The caller holds the refresh lease of the present name. Raises TableRefused when the other name is that of the table too, in any
        catalog, and StorageUnavailable when nobody tells.

        Catalogs that do not distinguish capitals load one table under many names, some can register one under two names, and two catalogs
        may be one database. Two indexes of one table would be planned twice, and a pause of one name would not hold for the other. The
        name that was read first stays. Of two names that an older version has read, the first in order stays.
        """
        loaded, uuid, location = known.index.loaded, head.table_uuid, head.layout.location
        is_known = loaded is not None and loaded.table_uuid == uuid
        for other in self._reader.with_uuid(uuid):
            if other.table == head.table or other.layout is None or other.layout.location != location:
                continue
            if is_known and (head.table < other.table or other.refusal is not None):
                continue
            now = self._uuid_at(other.table)
            if now == uuid:
                raise TableRefused(
                    f"{head.table} is the table {other.table} under another name: both have the uuid {uuid} and the location {location}; "
                    f"use the name {other.table}"
                )
            if is_known:
                # Both names were read while both led to the table. Only the other one does not any more.
                continue
            swapped = loaded.table_uuid if loaded is not None and now == loaded.table_uuid else None
            return self._move(other.table, head, swapped)
        return Followed.SAME

    def find_again(self, head: TableHead) -> bool:
        """Give a table that is known by name alone the history that it had before it vanished. Return whether it had one."""
        found = self._moves.find_again(head.table_uuid, head.table)
        if found:
            log.info("table=%s is found again by its uuid %s, with its history", head.table, head.table_uuid)
        return found

    def _move(self, old: TableIdentifier, head: TableHead, back: str | None) -> Followed:
        with self._alone(old, head.table) as alone:
            if not alone:
                return Followed.BUSY
            if not self._moves.move(head.table_uuid, old, head.table, back):
                log.info("table=%s has the name %s now: another process has moved it", old, head.table)
                return Followed.BUSY
        how = "and the two have swapped their names" if back is not None else "and what is known of it has come along"
        log.info("table=%s has the name %s now, %s", old, head.table, how)
        return Followed.MOVED

    @contextmanager
    def _alone(self, old: TableIdentifier, new: TableIdentifier) -> Iterator[bool]:
        """Hold what keeps others from working on either name. Yield False when somebody works there."""
        names = [refresh_lease(old), *(lease(table) for table in sorted((old, new)) for lease in _WORK)]
        with ExitStack() as held:
            yield all(held.enter_context(self._leases.hold(name)) is not None for name in names)

    def _uuid_at(self, table: TableIdentifier) -> str | None:
        """Return the uuid of the table that the catalog has under this name now; None when it has none."""
        try:
            return self._scan.head(table).table_uuid
        except NotFoundError:
            return None
        except CompactionError as error:
            raise StorageUnavailable(
                f"the table is known as {table} too, and its catalog does not tell whether it still is: {error}; when the catalog "
                f"{table.catalog} is gone for good, run `catalog remove {table.catalog}`"
            ) from error
