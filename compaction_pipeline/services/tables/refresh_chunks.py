"""Looks at many tables at a time, so that a catalog that answers table by table is not waited for once for each of them.

Only tables that have moved, or were never read, are then refreshed one by one. A first look at a table that has no snapshot yet needs no
more than its metadata, so many of them are stored in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.index import Empty, LoadedTable, TableIndex
from compaction_pipeline.core.tables.policies import TablePolicies, inherited
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.table import TableHead, TableIdentifier
from compaction_pipeline.services.tables.refresh_files import Refresh, RefreshFiles

CHUNK = 200
"""Tables that are looked at together. A tick looks at its clock after each chunk."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a look at some tables found. The `unmoved` are as they were at their last read, and nothing more is read of them.

    `first` are tables that were read for the first time, or could not be. `moved` maps each of the others to what was looked at already.
    """

    unmoved: frozenset[TableIdentifier]
    first: tuple[Refresh, ...]
    moved: Mapping[TableIdentifier, tuple[KnownTable, TableHead] | None]


class RefreshChunks:
    """The verbs places and look."""

    def __init__(
        self,
        reader: TableReader,
        index: IndexStore,
        scan: TableScan,
        refresh_files: RefreshFiles,
        ask_policies: Callable[[TableIdentifier, str], TablePolicies | None],
    ) -> None:
        """`ask_policies` is `AskPolicies.ask`: an answer counts for ten minutes, also of a table that stands still."""
        self._reader = reader
        self._index = index
        self._scan = scan
        self._refresh_files = refresh_files
        self._ask_policies = ask_policies

    def places(self) -> Mapping[TableIdentifier, str | None]:
        """Return all known tables, in the order of their texts, each with the place of the metadata that was read last."""
        return dict(sorted(self._reader.seen().items(), key=lambda each: str(each[0])))

    def look(self, tables: Mapping[TableIdentifier, str | None], now: datetime) -> Chunk:
        """Ask the catalogs of these tables, several at a time, which of them have moved, and read those of no snapshot for the first time.

        `tables` are some of `places`. An error of one table or one catalog is left to the refresh of the table.
        """
        unread = {known.table: known for known in self._reader.unread(tables)}
        unmoved: set[TableIdentifier] = set()
        for catalog in {table.catalog for table in tables}:
            known = {table: place for table, place in tables.items() if table.catalog == catalog and place is not None}
            for table in self._with_old_policies(known, now):
                del known[table]
            try:
                unmoved |= self._scan.unmoved(catalog, known) if known else frozenset()
            except CompactionError:
                continue
        heads = {table: head for table, head in self._scan.heads(list(unread)).items() if isinstance(head, TableHead)} if unread else {}
        try:
            simple = self._read_first(unread, heads, now)
        except NotFoundError:
            # Their catalog was removed a moment ago.
            simple = {}
        left = [table for table in tables if table not in unmoved and table not in simple]
        moved = {table: (unread[table], heads[table]) if table in heads else None for table in left}
        return Chunk(frozenset(unmoved), tuple(simple.values()), moved)

    def _with_old_policies(self, tables: Collection[TableIdentifier], now: datetime) -> Collection[TableIdentifier]:
        """Return those of these tables of one catalog whose policies must be asked for, which their refresh does."""
        told = self._reader.policies(tables) if tables else {}
        never = [table for table, (_, policies) in told.items() if policies is None]
        # One answer tells whether the catalog has policies by now. When it has none, no request is sent.
        if never and self._ask_policies(never[0], told[never[0]][0]) is None:
            never = []
        return {*never, *(table for table, (_, policies) in told.items() if policies is not None and policies.are_old(now))}

    def _read_first(
        self, unread: Mapping[TableIdentifier, KnownTable], heads: Mapping[TableIdentifier, TableHead], now: datetime
    ) -> Mapping[TableIdentifier, Refresh]:
        """Store the tables without a snapshot whose uuid nobody knows yet. Return their refreshes."""
        uuids = [head.table_uuid for head in heads.values()]
        known = self._reader.known_uuids(uuids)
        fresh = {
            table: head
            for table, head in heads.items()
            if head.refusal is None
            and head.snapshot_id is None
            and head.layout.keyed is None
            and head.table_uuid not in known
            and uuids.count(head.table_uuid) == 1
        }
        inherits = self._inherited(fresh)
        problems = {table: self._refresh_files.property_problem(head, inherits[table]) for table, head in fresh.items()}
        indexes = [(self._empty(unread[table], head, now, problems[table]), unread[table].index_version) for table, head in fresh.items()]
        stored = self._index.save_all(indexes) if indexes else frozenset()
        return {table: Refresh(table, problem=problems[table]) for table in fresh if table in stored}

    def _inherited(self, heads: Mapping[TableIdentifier, TableHead]) -> Mapping[TableIdentifier, Mapping[str, str]]:
        """What each of these tables inherits: the properties of its catalog, and what the policies there say."""
        found: dict[TableIdentifier, Mapping[str, str]] = {}
        for catalog in {table.catalog for table in heads}:
            properties = self._refresh_files.catalog_properties(catalog)
            tables = sorted(table for table in heads if table.catalog == catalog)
            # The answer about one table tells whether the catalog has policies at all.
            first = self._ask_policies(tables[0], heads[tables[0]].table_uuid)
            for table in tables:
                policies = first if first is None or table == tables[0] else self._ask_policies(table, heads[table].table_uuid)
                found[table] = inherited(properties, policies)
        return found

    def _empty(self, known: KnownTable, head: TableHead, now: datetime, problem: str | None) -> TableIndex:
        loaded, read_id = LoadedTable(head.table_uuid, head.layout), self._refresh_files.new_read_id()
        state = Empty(loaded, head.metadata_location, read_id, now, known.commits.landed, problem)
        return TableIndex(head.table, state, metadata=self._scan.metadata_figures(head, ()))
