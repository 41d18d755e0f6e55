"""Registers, checks and removes catalogs, keeps the list of their tables, and leaves tables alone for a while.

New tables are added, and dropped ones are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import AccessDenied, CompactionError, ConfigError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.catalog_properties import check_catalog_properties
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.index import IndexStore, SwitchStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.same_catalog import same_catalog
from compaction_pipeline.core.tables.table import CatalogEntry, DeclaredCatalog, TableIdentifier

log = logging.getLogger(__name__)

_COMPARED = 3
"""So many tables of a new catalog are compared with tables of the same names in each other catalog."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a listing found. `failed` pairs each catalog that could not be listed with the reason. Its tables stay as they were.

    A table is `dropped` only when its catalog does not list it, and also says that it does not exist.
    """

    appeared: tuple[TableIdentifier, ...] = ()
    dropped: tuple[TableIdentifier, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


class ExploreCatalogs:
    """The verbs on catalogs: entries, register, declare, explore, check and remove. The verbs on their tables: pause and resume.

    Only register, explore and check ask a catalog. The others answer while it is down.
    """

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        index: IndexStore,
        switches: SwitchStore,
        scan: Callable[[], TableScan],
        check_writable: Callable[[TableIdentifier], None],
    ) -> None:
        """`scan` opens what asks catalogs; it takes a second. `check_writable` raises AccessDenied as `Committer.check_writable` does."""
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._switches = switches
        self._open_scan = scan
        self._check_writable = check_writable

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
        AccessDenied.
        """
        tables = self._scan.list_tables(catalog)
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
        """Register a catalog, and return its tables. When its first listing fails, the catalog is forgotten and the error is raised.

        Raises ConfigError for a property of tables that is wrong or that nobody knows, and for a catalog that is registered under another
        name: its properties name the same place, or its tables are the tables of that name.
        """
        self.check_properties(entry.name, entry.properties)
        self._refuse_second_name(entry)
        self._catalogs.add(entry)
        try:
            found = self._scan.list_tables(entry.name)
            self._refuse_same_tables(entry.name, found)
        except CompactionError:
            self._catalogs.remove(entry.name)
            raise
        self._store_listing(entry.name, found)
        return found

    def check_properties(self, catalog: str, properties: Mapping[str, str]) -> None:
        """Raise ConfigError for everything that is wrong with the properties that a catalog has for its tables. This asks no catalog."""
        # The scan is opened only for a filter, because that imports much.
        check_catalog_properties(catalog, properties, lambda text: self._scan.why_no_condition(text))

    def declare(self, catalogs: Iterable[DeclaredCatalog]) -> None:
        """Register the catalogs that a deployment declares in its code.

        A registered one gets the declared properties. Whether it is only observed changes only when the declaration says so. This asks no
        catalog, so it works while one is down; `explore` lists the tables. A catalog that is not declared stays as it is. Raises
        ConfigError for a new one that is registered under another name.

        Properties are not checked, because one that is wrong must not stop the work on all other catalogs: plans of its tables say so.
        """
        declared = tuple(catalogs)
        registered = {entry.name: entry for entry in self._catalogs.entries()} if declared else {}
        for one in declared:
            if one.name not in registered:
                added = CatalogEntry(one.name, one.properties, bool(one.observe))
                self._refuse_second_name(added)
                try:
                    self._catalogs.add(added)
                    continue
                except ConfigError:
                    # Another process has registered the catalog since we looked.
                    registered[one.name] = self._catalogs.entry(one.name)
            known = registered[one.name]
            wanted = CatalogEntry(one.name, one.properties, known.observe if one.observe is None else one.observe)
            if wanted != known:
                log.info("catalog=%s becomes as it is declared", one.name)
                self._catalogs.replace(wanted)

    def _refuse_second_name(self, entry: CatalogEntry) -> None:
        same = same_catalog(entry, self._catalogs.entries())
        if same is not None:
            other, place = same
            raise ConfigError(
                f"catalog {entry.name!r} is the catalog {other.name!r} under another name: both are {place}; a catalog has one name here: "
                f"use {other.name!r}, or run `catalog remove {other.name}` first"
            )

    def _refuse_same_tables(self, catalog: str, found: Sequence[TableIdentifier]) -> None:
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
            if all(self._are_one(by_name[table.levels[1:]], table) for table in first):
                raise ConfigError(
                    f"catalog {catalog!r} holds the tables of the catalog {other!r}: {by_name[first[0].levels[1:]]} and {first[0]} have "
                    f"one uuid and one location; a table has one name here: use {other!r}, or run `catalog remove {other}` first"
                )

    def _are_one(self, table: TableIdentifier, other: TableIdentifier) -> bool:
        try:
            head, twin = self._scan.head(table), self._scan.head(other)
        except CompactionError as error:
            # The first look at the table finds it out.
            log.warning("table=%s not compared with %s: %s", table, other, error)
            return False
        return (head.table_uuid, head.layout.location) == (twin.table_uuid, twin.layout.location)

    def explore(self, catalog: str | None = None) -> Exploration:
        """List one catalog, or all. When all are listed, a catalog that cannot be listed is reported, and the others are still listed."""
        appeared: list[TableIdentifier] = []
        dropped: list[TableIdentifier] = []
        failed: list[tuple[str, str]] = []
        names = [catalog] if catalog else [entry.name for entry in self._catalogs.entries()]
        for name in names:
            try:
                found = self._scan.list_tables(name)
            except CompactionError as error:
                if catalog:
                    raise
                log.warning("catalog=%s not listed: %s", name, error)
                failed.append((name, str(error)))
                continue
            new, gone = self._store_listing(name, found)
            appeared += new
            dropped += gone
        return Exploration(tuple(appeared), tuple(dropped), tuple(failed))

    def _store_listing(self, catalog: str, found: Sequence[TableIdentifier]) -> tuple[list[TableIdentifier], list[TableIdentifier]]:
        known = {state.table for state in self._reader.states(catalog)}
        appeared = [table for table in found if table not in known]
        dropped = [table for table in sorted(known - set(found)) if self._is_gone(table)]
        for table in appeared:
            self._index.add(table)
        for table in dropped:
            log.info("table=%s dropped from its catalog: forgotten", table)
            self._index.forget(table)
        return appeared, dropped

    def _is_gone(self, table: TableIdentifier) -> bool:
        """Ask the catalog for a table that a listing does not name. Return whether it says that there is no such table.

        A catalog that starts may answer for a moment that a whole namespace does not exist. Its tables are not forgotten for that.
        """
        try:
            self._scan.head(table)
        except NotFoundError:
            return True
        except CompactionError as error:
            log.warning("table=%s is not listed, but it is not certain that it was dropped: %s", table, error)
        return False
