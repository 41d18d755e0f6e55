"""What the state database remembers of listings of catalogs, and how it follows a table that gets another name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.tables.listing import Findings, KnownName, Unseen
from compaction_pipeline.core.tables.table import TableIdentifier


class ListingStore(Protocol):
    """Which known tables listings did not see. Only `services/tables/explore_catalogs.py` writes it."""

    def names(self, catalog: str) -> Sequence[KnownName]:
        """Return the known tables of a catalog."""

    def note(self, catalog: str, findings: Findings) -> None:
        """Store what a listing found: new tables, the rounds of those that it missed, and its sentences in place of the last ones.

        One transaction holds many new tables, and the others see all of it or nothing.
        """

    def unseen(self) -> Sequence[Unseen]:
        """Return the sentences of the last listing of each catalog, sorted by catalog and namespace."""


class MoveStore(Protocol):
    """Follows tables by their uuids."""

    def move(self, table_uuid: str, old: TableIdentifier, new: TableIdentifier, back: str | None = None) -> bool:
        """Give all that is known of the table with this uuid from its `old` name to its `new` one, in one transaction.

        That is its switch, index, nodes, keys, tasks, records and consumers, and what upkeep remembers. `back` is the uuid of the table
        that is known as `new` and has the `old` name now: the two swap. Without it, a table that is known as `new` has vanished.

        Return False, and change nothing, when the table with this uuid is not known as `old` any more, or the one of `back` not as `new`:
        another process was faster.
        """

    def find_again(self, table_uuid: str, table: TableIdentifier) -> bool:
        """Give a table that is known by name alone the history of the vanished table with this uuid. Return whether there was one.

        The records and keys come along, and the table is paused when it was paused.
        """
