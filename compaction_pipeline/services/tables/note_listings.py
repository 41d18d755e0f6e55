"""Stores what listings of catalogs found: new tables, tables that have vanished, and what was not seen.

`core/tables/listing.py` decides what a listing proves. Of a table that may leave, its catalog is asked once more before it is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.listing import CatalogListing, Findings, Unseen, judge_listing
from compaction_pipeline.core.tables.ports.listings import ListingStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.tables.let_go import LetGo

log = logging.getLogger(__name__)

_GONE = "its catalog does not list the table any more, and says that it does not exist"


class NoteListings:
    """The verbs note, look and unseen."""

    def __init__(self, let_go: LetGo, listings: ListingStore, scan: Callable[[], TableScan], clock: Clock, interval: timedelta) -> None:
        """`interval` is the time between two listings of a catalog."""
        self._let_go = let_go
        self._listings = listings
        self._scan = scan
        self._clock = clock
        self._interval = interval

    def unseen(self) -> Sequence[Unseen]:
        """What the last listing of each catalog did not see. No catalog is asked."""
        return self._listings.unseen()

    def look(self, catalog: str, listing: CatalogListing) -> Sequence[Unseen]:
        """What a listing does not see of what is known, as sentences. Nothing is stored."""
        return judge_listing(catalog, listing, self._listings.names(catalog), self._clock(), self._interval).unseen

    def note(
        self, catalog: str, listing: CatalogListing, kept: Collection[TableIdentifier] | None = None, *, accepted: bool = False
    ) -> tuple[Findings, Sequence[TableIdentifier]]:
        """Store a listing. Return what it means, and the tables that were forgotten: nothing of them is under way.

        `kept` are those of its tables that the filters of the catalog leave in; None when there are no filters. With `accepted`, a person
        accepts what vanished.
        """
        known = self._listings.names(catalog)
        found = judge_listing(catalog, listing, known, self._clock(), self._interval, accepted=accepted, kept=kept)
        gone = self._gone(found.may_leave)
        if len(gone) < len(found.may_leave):
            found = replace(found, unseen=(*found.unseen, _doubted(catalog, sorted(set(found.may_leave) - set(gone)))))
        self._listings.note(catalog, found)
        for one in found.unseen:
            log.warning("%s", one.sentence)
        # What runs may end first, because its end must still be stored. The next round asks again.
        return found, [table for table in gone if self._let_go.let_go(table, _GONE)]

    def _gone(self, tables: Sequence[TableIdentifier]) -> list[TableIdentifier]:
        """Ask the catalog for each of these tables, which a listing does not name. Return those of which it says that they do not exist."""
        gone = []
        for table, answer in self._scan().absent(tables).items() if tables else ():
            if answer is True:
                gone.append(table)
            elif answer is not False:
                log.warning("table=%s is not listed, but it is not certain that it was dropped: %s", table, answer)
        return gone


def _doubted(catalog: str, tables: Sequence[TableIdentifier]) -> Unseen:
    it_was, it = ("it was", "it") if len(tables) == 1 else ("they were", "them")
    sentence = (
        f"catalog {catalog} does not list {count_text(len(tables), 'table')}, e.g. {tables[0]}, but does not say either that {it_was} "
        f"dropped, so what is known of {it} stays; check the rights of the catalog's credentials"
    )
    return Unseen(catalog, ("doubted",), sentence, len(tables))
