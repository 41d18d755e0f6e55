"""Reads the facts of tables from which readiness is decided: the FactsReader port.

A look costs one question to the catalog and, when the table has moved, one metadata file for each store. What was read of a metadata file
is kept as long as the file is the newest one.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from compaction_pipeline.core.dependencies.ports import PartitionReading, Seen, StoreFacts, TableFacts
from compaction_pipeline.core.errors import CompactionError, ConfigError, TableRefused
from compaction_pipeline.core.tables.kinds import base_store, is_change_store, is_keyed
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.dependencies.manifest_places import Handle
from compaction_pipeline.iceberg.dependencies.partition_commits import read_partitions
from compaction_pipeline.iceberg.dependencies.raw_metadata import RawMetadata

_MOST_SNAPSHOTS = 50_000
"""What was read is kept of so many snapshots of all tables together, about 3 KB each. Those that were not asked for longest go first."""
_NAMESPACE_SECONDS = 30
"""So long the properties of a namespace are not asked for again."""
_CREDENTIAL_SECONDS = 300
"""So long after a catalog gave them, credentials open files for sure."""
_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}[^/]*\.metadata\.json[^/]*$", re.IGNORECASE)
"""A name that no other metadata file has or ever gets. Files of Hadoop tables (`v3.metadata.json`) may be those of a table made anew."""


class IcebergFactsReader:
    """The FactsReader on PyIceberg's catalogs and our readers of raw metadata. Threads may share it."""

    def __init__(self, catalogs: Catalogs, clock: Callable[[], float] = time.monotonic, most_snapshots: int = _MOST_SNAPSHOTS) -> None:
        self._catalogs = catalogs
        self._clock = clock
        self._most = most_snapshots
        self._lock = Lock()
        self._known: OrderedDict[TableIdentifier, StoreFacts] = OrderedDict()
        self._namespaces: dict[tuple[str, tuple[str, ...]], tuple[float, Mapping[str, str]]] = {}

    def read(self, table: TableIdentifier) -> TableFacts:
        base = self._store(table)
        stores = (base, self._change_store(table, base)) if is_keyed(base.properties) else (base,)
        return TableFacts(table, base.table_uuid, stores, self._namespace(table))

    def unmoved(self, seen: Collection[Seen]) -> frozenset[TableIdentifier]:
        places: dict[str, dict[TableIdentifier, str]] = {}
        for one in seen:
            for store, location in one.stores.items():
                if _UNIQUE.search(location):
                    places.setdefault(store.catalog, {})[store] = location
        still = frozenset[TableIdentifier]()
        for catalog, known in places.items():
            try:
                still |= self._catalogs.still_at(catalog, known)
            except CompactionError:
                # The look at each table says what is wrong.
                continue
        return frozenset(one.table for one in seen if still.issuperset(one.stores) and self._has_namespace(one))

    def _has_namespace(self, one: Seen) -> bool:
        try:
            return self._namespace(one.table) == one.namespace
        except CompactionError:
            return False

    def partition_commits(self, facts: TableFacts, since: Sequence[int | None] | None) -> PartitionReading:
        return read_partitions(facts, since, self._openable)

    def _openable(self, store: StoreFacts) -> StoreFacts:
        """The same store, with credentials that a catalog has given a short time ago: facts may be kept for longer than these hold."""
        if self._clock() - store.handle.read_at < _CREDENTIAL_SECONDS:
            return store
        raw = self._catalogs.load_raw(store.store)
        assert raw is not None
        return replace(store, handle=replace(store.handle, io=raw.io, read_at=self._clock()))

    def _change_store(self, table: TableIdentifier, base: StoreFacts) -> StoreFacts:
        try:
            levels = base_store(str(table), base.properties).change_store
        except TableRefused as error:
            raise ConfigError(str(error)) from error
        name = TableIdentifier(table.catalog, levels[:-1], levels[-1])
        change = self._store(name)
        if not is_change_store(change.properties):
            raise ConfigError(f"table {table} names {name} as its change store, but that is no change store: correct its properties")
        return change

    def _store(self, table: TableIdentifier) -> StoreFacts:
        with self._lock:
            known = self._known.get(table)
        raw = self._catalogs.load_raw(table, known.metadata_location if known is not None else None)
        if raw is None:
            assert known is not None
            self._keep(known)
            return known
        read = RawMetadata(raw.metadata, f"table {table}: its metadata {raw.location or ''}".rstrip())
        specs = read.specs()
        facts = StoreFacts(
            store=table,
            table_uuid=read.uuid,
            metadata_location=raw.location or "",
            history=read.history(),
            properties=read.properties,
            specs={number: tuple(field.known for field in fields) for number, fields in specs.items()},
            spec_id=read.spec_id,
            handle=Handle(raw.io, read.format_version, read.raw_snapshots(), specs, self._clock()),
        )
        self._keep(facts)
        return facts

    def _keep(self, facts: StoreFacts) -> None:
        with self._lock:
            self._known.pop(facts.store, None)
            if not _UNIQUE.search(facts.metadata_location) or len(facts.history.snapshots) > self._most:
                return
            self._known[facts.store] = facts
            total = sum(len(one.history.snapshots) for one in self._known.values())
            while total > self._most:
                _, gone = self._known.popitem(last=False)
                total -= len(gone.history.snapshots)

    def _namespace(self, table: TableIdentifier) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for levels in range(1, len(table.namespace) + 1):
            found.update(self._of_namespace(table, table.namespace[:levels]))
        return found

    def _of_namespace(self, table: TableIdentifier, namespace: tuple[str, ...]) -> Mapping[str, str]:
        now = self._clock()
        with self._lock:
            known = self._namespaces.get((table.catalog, namespace))
        if known is not None and now - known[0] < _NAMESPACE_SECONDS:
            return known[1]
        properties = self._catalogs.namespace_properties(table, namespace)
        with self._lock:
            self._namespaces[table.catalog, namespace] = now, properties
        return properties
