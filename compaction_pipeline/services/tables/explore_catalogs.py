"""Registers, checks and removes catalogs, keeps the list of their tables, and leaves tables alone for a while.

New tables are added, and dropped ones are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, StorageUnavailable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.catalog_properties import check_catalog_properties
from compaction_pipeline.core.tables.listing import CatalogListing, Unseen
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.index import SwitchStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.same_catalog import same_catalog
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.services.table_filters import passing, why_left_out
from compaction_pipeline.services.tables.let_go import LetGo
from compaction_pipeline.services.tables.note_listings import NoteListings

log = logging.getLogger(__name__)

_COMPARED = 3
"""So many tables of a new catalog are compared with tables of the same names in each other catalog."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a listing found. `failed` pairs each catalog that could not be listed with the reason. Its tables stay as they were.

    A table is `dropped` only when its catalog does not list it, and also says that it does not exist. `left_out` are tables that were
    looked after until now and that the filters of their catalog leave out. `unseen` has a sentence for each namespace that failed, and for
    tables that have vanished and stay for now. `others` are tables of other formats, which nobody looks after: whole names, with what each
    is in words.
    """

    appeared: tuple[TableIdentifier, ...] = ()
    dropped: tuple[TableIdentifier, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    left_out: tuple[TableIdentifier, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)


class ExploreCatalogs:
    """The verbs on catalogs: entries, register, explore, check and remove. The verbs on their tables: pause and resume.

    Only register, explore and check ask a catalog. The others answer while it is down.
    """

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        note: NoteListings,
        switches: SwitchStore,
        scan: Callable[[], TableScan],
        check_writable: Callable[[TableIdentifier], None],
        let_go: LetGo,
    ) -> None:
        """`scan` opens what asks catalogs; it takes a second. `check_writable` raises AccessDenied as `Committer.check_writable` does."""
        self._catalogs = catalogs
        self._reader = reader
        self._note = note
        self._switches = switches
        self._open_scan = scan
        self._check_writable = check_writable
        self._let_go = let_go

    @property
    def _scan(self) -> TableScan:
        return self._open_scan()

    def entries(self) -> Sequence[CatalogEntry]:
        """Every registered catalog, sorted by name."""
        return self._catalogs.entries()

    def remove(self, name: str) -> None:
        """Forget the catalog, its tables, their tasks and their records. The tables themselves stay as they are.

        Raises NotFoundError when it is not registered.
        """
        self._catalogs.remove(name)

    def pause(self, table: TableIdentifier | None = None) -> int:
        """Pause one table, or all: also those that appear before all are resumed. Return how many tables changed.

        A paused table is measured, but nothing is planned for it, and its waiting tasks have no turn before it is resumed. Tasks that run
        when the pause begins are finished and committed. Raises NotFoundError when the table is unknown.
        """
        return self._switches.pause(table, True)

    def resume(self, table: TableIdentifier | None = None) -> int:
        """Resume one table, or all. Return how many tables changed. Raises NotFoundError when the table is unknown."""
        return self._switches.pause(table, False)

    def check(self, catalog: str, write: bool = False) -> Sequence[TableIdentifier]:
        """List the catalog's tables and read the first one; with `write`, write and delete one tiny file there too.

        The first table stands for all of them. Returns all tables. Raises the error of the catalog or of its storage, for example
        AccessDenied, and StorageUnavailable when the listing does not show all of its namespaces and of the known tables.
        """
        listing = self._scan.listing(catalog)
        unseen = self._note.look(catalog, listing)
        if unseen:
            raise StorageUnavailable("; ".join(one.sentence for one in unseen))
        tables = tuple(sorted(listing.tables))
        self.read_first(tables)
        if write:
            for table in tables[:1]:
                self._check_writable(table)
        return tables

    def read_first(self, tables: Sequence[TableIdentifier]) -> None:
        """Read the metadata and the manifest list of the first table. Raises AccessDenied.

        Any other error is a problem of that one table. It is logged and says nothing about the catalog.
        """
        for table in tables[:1]:
            try:
                head = self._scan.head(table)
                if head.snapshot_id is not None:
                    self._scan.manifests(table, head.snapshot_id)
            except AccessDenied:
                raise
            except CompactionError as error:
                log.warning("table=%s was not read: %s", table, error)

    def register(self, entry: CatalogEntry) -> Sequence[TableIdentifier]:
        """Register a catalog, and return its tables, filtered or not. When its first listing fails, nothing is stored.

        Raises as `tried`.
        """
        listing = self.tried(entry)
        self._catalogs.add(entry)
        self.store_listing(entry, listing)
        return sorted(listing.tables)

    def tried(self, entry: CatalogEntry) -> CatalogListing:
        """List the tables of a catalog as this entry describes it, filtered or not. Nothing is stored.

        Raises ConfigError for a property of tables that is wrong or that nobody knows, and for a catalog that is registered under another
        name: its properties name the same place, or its tables are the tables of that name. Raises what the catalog answers.
        """
        self.check_properties(entry.name, entry.properties)
        self.refuse_second_name(entry)
        scan = self._scan.trying(entry)
        listing = scan.listing(entry.name)
        self._refuse_same_tables(entry.name, sorted(listing.tables), scan)
        return listing

    def check_properties(self, catalog: str, properties: Mapping[str, str]) -> None:
        """Raise ConfigError for everything that is wrong with the properties that a catalog has for its tables. This asks no catalog."""
        check_catalog_properties(catalog, properties, self.why_no_condition)

    def why_no_condition(self, text: str) -> str | None:
        """Say why a text is a condition for no table at all; None when it may be one."""
        # The scan is opened only for a filter, because that imports much.
        return self._scan.why_no_condition(text)

    def refuse_second_name(self, entry: CatalogEntry) -> None:
        """Raise ConfigError when the properties of a catalog name the place of one that is registered under another name."""
        same = same_catalog(entry, self._catalogs.entries())
        if same is not None:
            other, place = same
            raise ConfigError(
                f"catalog {entry.name!r} is the catalog {other.name!r} under another name: both are {place}; a catalog has one name here: "
                f"use {other.name!r}, or run `catalog remove {other.name}` first"
            )

    def _refuse_same_tables(self, catalog: str, found: Sequence[TableIdentifier], scan: TableScan) -> None:
        """Raise ConfigError when the first tables that another catalog names in the same way are the same tables.

        This finds a catalog that is reached by two URIs. Where only some tables are in both catalogs, the catalog is accepted, and each of
        these tables is refused at the first look at it.
        """
        by_name = {table.levels[1:]: table for table in found}
        twins: dict[str, list[TableIdentifier]] = {}
        for known in sorted(self._reader.seen()):
            if known.catalog != catalog and known.levels[1:] in by_name:
                twins.setdefault(known.catalog, []).append(known)
        for other, tables in twins.items():
            first = tables[:_COMPARED]
            if all(self._are_one(by_name[table.levels[1:]], table, scan) for table in first):
                raise ConfigError(
                    f"catalog {catalog!r} holds the tables of the catalog {other!r}: {by_name[first[0].levels[1:]]} and {first[0]} have "
                    f"one uuid and one location; a table has one name here: use {other!r}, or run `catalog remove {other}` first"
                )

    def _are_one(self, table: TableIdentifier, other: TableIdentifier, scan: TableScan) -> bool:
        try:
            head, twin = scan.head(table), self._scan.head(other)
        except CompactionError as error:
            # The first look at the table finds it out.
            log.warning("table=%s not compared with %s: %s", table, other, error)
            return False
        return (head.table_uuid, head.layout.location) == (twin.table_uuid, twin.layout.location)

    def explore(self, catalog: str | None = None, *, accept_vanished: bool = False) -> Exploration:
        """List one catalog, or all. When all are listed, a catalog that cannot be listed is reported, and the others are still listed.

        Tables that many vanish with stay until later rounds miss them too. With `accept_vanished` a person says that they are gone; each of
        them is still forgotten only when its catalog says of it that it does not exist.
        """
        rounds: list[Exploration] = []
        entries = [self._catalogs.entry(catalog)] if catalog else self._catalogs.entries()
        for entry in entries:
            try:
                rounds.append(self.store_listing(entry, self._scan.listing(entry.name), accept_vanished=accept_vanished))
            except CompactionError as error:
                if catalog:
                    raise
                log.warning("catalog=%s not listed: %s", entry.name, error)
                rounds.append(Exploration(failed=((entry.name, str(error)),)))
        return Exploration(
            tuple(table for each in rounds for table in each.appeared),
            tuple(table for each in rounds for table in each.dropped),
            tuple(one for each in rounds for one in each.failed),
            tuple(table for each in rounds for table in each.left_out),
            tuple(one for each in rounds for one in each.unseen),
            {table: kind for each in rounds for table, kind in each.others.items()},
        )

    def store_listing(self, entry: CatalogEntry, listing: CatalogListing, *, accept_vanished: bool = False) -> Exploration:
        """Add and forget tables of a catalog as its listing and its filters say. Raises ConfigError for a filter that is none."""
        kept = frozenset(passing(listing.tables, entry.properties))
        known = {table for table in self._reader.seen() if table.catalog == entry.name}
        found, dropped = self._note.note(entry.name, listing, kept, accepted=accept_vanished)
        left_out = tuple(table for table in sorted(known & (listing.tables.keys() - kept)) if self._leave_out(table, entry))
        return Exploration(found.appeared, tuple(dropped), left_out=left_out, unseen=found.unseen, others=listing.others)

    def unseen(self) -> Sequence[Unseen]:
        """What the last listing of each catalog did not see. No catalog is asked."""
        return self._note.unseen()

    def _leave_out(self, table: TableIdentifier, entry: CatalogEntry) -> bool:
        return self._let_go.let_go(table, why_left_out(table, entry.properties) or "the filters of its catalog leave it out")
