"""Keeps the index of every table's live files. It compares manifest lists, and reads nothing of a table whose head stood still.

`core/tables/index.py` has the states of an index and their invariant. A table is stored as `Reading` before its first file changes,
and as `Complete` after its last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.cycle_search import without_cycle_search
from compaction_pipeline.core.errors import CompactionError, NotFoundError, TableRefused
from compaction_pipeline.core.fragmentation.keyed_metrics import measure_keyed
from compaction_pipeline.core.fragmentation.small_since import changed_at
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.leases.names import refresh_lease
from compaction_pipeline.core.leases.ports import HeldLeases, Renew
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.foreign_rewrite import foreign_rewrite
from compaction_pipeline.core.tables.index import (
    NO_SNAPSHOT,
    Complete,
    Empty,
    LoadedTable,
    Reading,
    Refused,
    TableIndex,
    last_old_spec_delete,
    measures_differ,
)
from compaction_pipeline.core.tables.kinds import is_keyed
from compaction_pipeline.core.tables.live_files import manifest_changes
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import TablePolicies, inherited
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.index import IndexStore
from compaction_pipeline.core.tables.ports.scan import TableScan
from compaction_pipeline.core.tables.properties import properties_or_defaults, resolve_properties
from compaction_pipeline.core.tables.table import ManifestRef, TableHead, TableIdentifier
from compaction_pipeline.services.tables.follow_names import Followed, FollowNames
from compaction_pipeline.services.tables.measure_nodes import MeasureKeyed, MeasureNodes

log = logging.getLogger(__name__)

BATCH_FILES = 20_000
"""One transaction stores at least this many files, unless fewer are left. The deadline is checked before each manifest."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """What one refresh found.

    `complete` is True when the index is now that of the table's head. `busy` is True when another process refreshes the table, and
    `held_by` names that process. `changed` are the nodes whose files or figures changed. `problem` is what a person should know.
    `error` is the error that kept the table from being read; a refusal is no such error.
    """

    table: TableIdentifier
    complete: bool = True
    busy: bool = False
    held_by: LeaseHolder | None = None
    changed: tuple[TableNode, ...] = ()
    problem: str | None = None
    error: CompactionError | None = None


@dataclass(frozen=True, slots=True)
class OnLook:
    """What other use cases do at a look at a table.

    `follow_names` finds out whether the table has another name now. `note_rollbacks` compares the records of commits with the history of a
    head that has moved. `ask_policies` is `AskPolicies.ask`.
    """

    follow_names: FollowNames
    note_rollbacks: Callable[[TableHead], None]
    ask_policies: Callable[[TableIdentifier, str], TablePolicies | None]


class _Overtaken(Exception):
    """Somebody else changed the index since this process looked at it. What this process found may be older."""


class RefreshFiles:
    """One verb: refresh."""

    def __init__(
        self,
        catalogs: CatalogStore,
        reader: TableReader,
        index: IndexStore,
        files: FileStore,
        leases: HeldLeases,
        scan: TableScan,
        on_look: OnLook,
    ) -> None:
        self._catalogs = catalogs
        self._reader = reader
        self._index = index
        self._files = files
        self._leases = leases
        self._scan = scan
        self._clock = clock = leases.clock
        self._on_look = on_look
        self._measure_nodes = MeasureNodes(reader, index, files, clock)
        self._measure_keyed = MeasureKeyed(reader, index, clock)

    def unmoved(self) -> Collection[TableIdentifier]:
        """Return the tables whose metadata path is the same as at their last complete read. Nothing of them needs to be read.

        Tables that the last listing missed are among them: it is not known whether they are there, and the next listing asks.
        The result has no table of a catalog that cannot name the places of all its tables in one answer. When a catalog fails, `refresh`
        says why, table by table.
        """
        seen = self._reader.seen()
        unmoved = set(self._reader.missed())
        for catalog in {table.catalog for table in seen}:
            try:
                locations = self._scan.locations(catalog)
            except CompactionError as error:
                log.debug("catalog=%s does not say where its tables lie: %s", catalog, error)
                continue
            unmoved.update(table for table, location in locations.items() if location == seen.get(table))
        return unmoved

    def refresh(
        self, table: TableIdentifier, deadline: datetime | None = None, looked_at: tuple[KnownTable, TableHead] | None = None
    ) -> Refresh:
        """Bring the index of one table to its head.

        After `deadline` it stops between two manifests, and the next refresh goes on from there. A table that cannot be read keeps
        its files and shows the problem. It is not planned until a refresh has read it. Raises NotFoundError when the table is gone. Such a
        table shows that, and the next listing of its catalog decides whether it is forgotten; one that was never read is forgotten at once.

        `looked_at` is what was known of a table that nobody had read yet, and its head, which the caller has loaded after that.
        """
        with self._lease(table) as renew:
            if renew is None:
                return self._busy(table)
            try:
                # One manifest, or one transaction, may take longer than the lease. Each renewal on the way tells whether it was lost.
                return self._refresh(table, deadline, renew, looked_at)
            except NotFoundError as error:
                # A catalog that was restored without its tables says this of each of them. Only a listing sees how many they are.
                log.info("table=%s is gone, says its catalog: %s", table, error)
                if self._known(table).index.loaded is None:
                    # Nobody has ever read a table of this name, which somebody may have misspelt.
                    self._index.forget(table)
                    raise
                self._fail(table, f"{error}; the next listing of its catalog decides whether it is forgotten")
                raise
            except _Overtaken:
                log.info("table=%s was changed by somebody else while it was refreshed", table)
                return self._busy(table)
            except TableRefused as refusal:
                known = self._known(table)
                self._index.save(known.index.turned(Refused(str(refusal), known.index.loaded)), known.index_version)
                return Refresh(table, complete=False, problem=str(refusal))
            except CompactionError as error:
                log.warning("table=%s not refreshed: %s", table, error)
                # The table is not planned from what was read before, because its merges would only use up their attempts.
                self._fail(table, str(error))
                return Refresh(table, complete=False, problem=str(error), error=error)

    def catalog_properties(self, catalog: str) -> Mapping[str, str]:
        """The properties of a catalog. Raises NotFoundError when it is not registered any more."""
        return self._catalogs.entry(catalog).properties

    def new_read_id(self) -> str:
        """Return a value that no two reads have."""
        return self._leases.new_owner()

    def note_problem(self, table: TableIdentifier, problem: str) -> None:
        """Show on a table why its refresh ended in an error that nobody foresaw."""
        with self._lease(table) as renew:
            if renew is not None:
                self._fail(table, problem)

    def _fail(self, table: TableIdentifier, problem: str) -> None:
        known = self._known(table)
        self._index.save(known.index.failed(problem), known.index_version)

    def _busy(self, table: TableIdentifier) -> Refresh:
        return Refresh(table, complete=False, busy=True, held_by=self._leases.holder(refresh_lease(table)))

    def _lease(self, table: TableIdentifier) -> AbstractContextManager[Renew | None]:
        """Hold the table's refresh lease, and renew it beside the block. Yield how to renew it, or None when another process holds it."""
        return self._leases.hold(refresh_lease(table))

    def _refresh(
        self, table: TableIdentifier, deadline: datetime | None, renew: Renew, looked_at: tuple[KnownTable, TableHead] | None
    ) -> Refresh:
        # This is read before the head is loaded. When a commit of this program lands in between, the index does not count it, so the
        # index is outdated and read again.
        known, head = looked_at or (self._known(table), None)
        head = head or self._scan.head(table)
        if known.whole is None or known.whole.loaded.table_uuid != head.table_uuid or not _stands_still(known, known.whole, head):
            known = self._under_its_name(known, head)
        known = self._anew_if_recreated(known, head)
        told_anew = _policies_changed(known, self._on_look.ask_policies(table, head.table_uuid))
        if known.index.loaded is None and self._on_look.follow_names.find_again(head):
            known = self._reader.state(table)
        if measures_differ(known.layout, head.layout) or told_anew:
            # Touch the nodes before the new layout is stored. When the process is killed in between, the nodes are measured again.
            self._files.touch(table)
            self._index.forget_verdicts(table)
        whole = known.whole
        if head.refusal is not None:
            refused = known.index.turned(Refused(head.refusal, _loaded(head), head.metadata_location))
            self._save(self._with_old_spec_deletes(refused, known.index, head), known.index_version)
            return Refresh(table, complete=False, problem=head.refusal)
        if whole is not None and _stands_still(known, whole, head):
            if told_anew:
                self._measure(known.index, head, renew)
            self._note_still(known, whole, head, renew)
            return Refresh(table)
        if head.layout.keyed is not None:
            # Commits to the change store have no place in the history of the base store, and no catalog may take back either.
            return self._read_keyed(known, head, renew)
        self._on_look.note_rollbacks(head)
        return self._read(known, head, deadline, renew)

    def _known(self, table: TableIdentifier) -> KnownTable:
        """Return what is known of a table. A table that no catalog listing has found yet becomes known here."""
        try:
            return self._reader.state(table)
        except NotFoundError:
            self._index.add(table)
            return self._reader.state(table)

    def _under_its_name(self, known: KnownTable, head: TableHead) -> KnownTable:
        """Return what is known of the table of this head, which may have had another name until now. Raises TableRefused, _Overtaken."""
        followed = self._on_look.follow_names.follow(known, head)
        if followed is Followed.BUSY:
            raise _Overtaken
        return self._reader.state(head.table) if followed is Followed.MOVED else known

    def _anew_if_recreated(self, known: KnownTable, head: TableHead) -> KnownTable:
        loaded = known.index.loaded
        if loaded is None:
            return known
        if loaded.table_uuid != head.table_uuid:
            # The table was dropped, and another one was made under its name. Nothing that we know is about this one.
            log.warning("table=%s was recreated (uuid %s → %s): its state starts anew", head.table, loaded.table_uuid, head.table_uuid)
        elif is_keyed(loaded.layout.properties) != is_keyed(head.layout.properties):
            # A keyed table has other nodes than a plain one, and no index of files.
            log.warning("table=%s became a keyed table, or is none any more: its state starts anew", head.table)
        else:
            return known
        version = self._index.begin_anew(head.table, known.index_version)
        if version is None:
            raise _Overtaken
        return KnownTable(TableIndex(head.table), switch=known.switch, index_version=version)

    def _save(self, index: TableIndex, version: str) -> str:
        """Store an index that was made from this version of it, and return the new version. Raises _Overtaken."""
        new = self._index.save(index, version)
        if new is None:
            raise _Overtaken
        return new

    def _note_still(self, known: KnownTable, whole: Complete | Empty, head: TableHead, renew: Renew) -> None:
        """Store what changed without a snapshot: properties, schemas, specs, and the place of the metadata."""
        index = known.index
        problem = self.property_problem(head)
        now = replace(whole, loaded=_loaded(head), metadata_location=head.metadata_location, property_problem=problem)
        if now == whole:
            return
        if measures_differ(index.layout, head.layout):
            self._measure(index, head, renew)
        figures = self._scan.metadata_figures(head, None)
        if index.metadata is not None:
            figures = replace(index.metadata, snapshots=figures.snapshots, metadata_bytes=figures.metadata_bytes)
        self._save(self._with_old_spec_deletes(replace(index, state=now, metadata=figures), index, head), known.index_version)

    def _read(self, known: KnownTable, head: TableHead, deadline: datetime | None, renew: Renew) -> Refresh:
        """Bring the files of a table whose head moved, or whose index is not whole, to the head."""
        table, index = head.table, known.index
        manifests = self._scan.manifests(table, head.snapshot_id) if head.snapshot_id is not None else ()
        changes = manifest_changes(self._files.manifests(table), manifests)
        problem = self.property_problem(head)
        reading = replace(
            # Deletes of an old spec are noted before their files are indexed. A refresh that goes on later does not find them again.
            self._with_old_spec_deletes(index.turned(Reading(_loaded(head), problem)), index, head, changes.added),
            warning=foreign_rewrite(head, index.last_snapshot_id, RECORD_ID_PROPERTY) or index.warning,
        )
        version = self._save(reading, known.index_version)
        if not self._apply(table, changes.removed, changes.added, deadline, renew):
            log.info("table=%s reading goes on at the next tick", table)
            return Refresh(table, complete=False, problem=problem)
        changed = self._measure(index, head, renew)
        if not renew():
            # This process stood still, and another one took over. It changes the files that this one would call whole.
            return Refresh(table, complete=False, problem=problem)
        common = (head.metadata_location, self.new_read_id(), self._clock(), known.commits.landed, problem)
        if head.snapshot_id is None:
            whole: Complete | Empty = Empty(_loaded(head), *common)
        else:
            whole = Complete(_loaded(head), head.snapshot_id, head.sequence_number, *common)
        self._save(replace(reading.turned(whole), metadata=self._scan.metadata_figures(head, manifests)), version)
        return Refresh(table, changed=changed, problem=problem)

    def _read_keyed(self, known: KnownTable, head: TableHead, renew: Renew) -> Refresh:
        """Measure a keyed table of which one of the stores moved. Its files are not stored."""
        table, index = head.table, known.index
        properties = properties_or_defaults(head.layout.properties, self._of_catalog(table))
        try:
            files = self._scan.keyed_content(head, self._clock()).files
            measured = measure_keyed(files, head.layout.properties, properties)
        except TableRefused as refusal:
            self._save(index.turned(Refused(str(refusal), _loaded(head), head.metadata_location)), known.index_version)
            return Refresh(table, complete=False, problem=str(refusal))
        problem = self.property_problem(head)
        newest = files.change_snapshot_id or head.snapshot_id
        changed = self._measure_keyed.measure(table, measured, newest, properties, changed_at(index, head, self._clock()), renew)
        if changed is None:
            return Refresh(table, complete=False, problem=problem)
        common = (head.metadata_location, self.new_read_id(), self._clock(), known.commits.landed, problem)
        if measured:
            snapshot_id = head.snapshot_id or NO_SNAPSHOT
            whole: Complete | Empty = Complete(_loaded(head), snapshot_id, head.sequence_number, *common, head.change_store)
        else:
            whole = Empty(_loaded(head), *common)
        warning = foreign_rewrite(head, index.last_snapshot_id, RECORD_ID_PROPERTY) or index.warning
        figures = self._scan.metadata_figures(head, None)
        self._save(replace(index.turned(whole), warning=warning, metadata=figures), known.index_version)
        return Refresh(table, changed=changed, problem=problem)

    def _with_old_spec_deletes(
        self, changed: TableIndex, index: TableIndex, head: TableHead, added: Sequence[ManifestRef] = ()
    ) -> TableIndex:
        """Return `changed` with the time of the last delete of an old spec. `changed` is `index` with the layout of the head.

        Both are stored together: once the layout is stored, nothing else tells of an evolution of the spec.
        """
        return replace(changed, last_old_spec_delete_at=last_old_spec_delete(index, head, added, self._clock()))

    def _apply(
        self, table: TableIdentifier, removed: Iterable[str], added: Sequence[ManifestRef], deadline: datetime | None, renew: Renew
    ) -> bool:
        """Store the files of the added manifests, and drop those of the removed ones. Return False when files are left to read."""
        with without_cycle_search():
            return self._apply_in_batches(table, removed, added, deadline, renew)

    def _apply_in_batches(
        self, table: TableIdentifier, removed: Iterable[str], added: Sequence[ManifestRef], deadline: datetime | None, renew: Renew
    ) -> bool:
        batch: dict[str, Sequence[LiveFile]] = {}
        count = 0
        for manifest in added:
            if deadline is not None and self._clock() >= deadline:
                if renew():
                    self._files.apply(table, (), batch)
                return False
            files = self._scan.live_files(table, manifest)
            batch[manifest.path] = list(files)
            count += len(batch[manifest.path])
            if count >= BATCH_FILES:
                if not renew():
                    # This process stood still, and another one took over. What that one reads is newer.
                    return False
                self._files.apply(table, (), batch)
                batch, count = {}, 0
        if not renew():
            return False
        self._files.apply(table, removed, batch)
        return True

    def _measure(self, index: TableIndex, head: TableHead, renew: Renew) -> tuple[TableNode, ...]:
        """Store the figures of every node whose files changed, and return the nodes whose files or figures have changed.

        `index` is what was known of the table before this look.
        """
        properties = properties_or_defaults(head.layout.properties, self._of_catalog(head.table))
        return self._measure_nodes.measure(head, properties, changed_at(index, head, self._clock()), renew)

    def _of_catalog(self, table: TableIdentifier) -> Mapping[str, str]:
        """The properties that a table inherits."""
        return inherited(self._catalogs.entry(table.catalog).properties, self._reader.state(table).policies)

    def property_problem(self, head: TableHead, of_catalog: Mapping[str, str] | None = None) -> str | None:
        """Say which property of a table, or of its catalog, breaks its rule; None when none does.

        `of_catalog` is what the table inherits, if the caller knows it already.
        """
        inherited_here = self._of_catalog(head.table) if of_catalog is None else of_catalog
        try:
            properties = resolve_properties(head.layout.properties, inherited_here, head.table)
            if properties.filter:
                self._scan.partition_filter(head.table, head.layout, properties.filter)
        except CompactionError as error:
            return str(error)
        return None


def _policies_changed(known: KnownTable, policies: TablePolicies | None) -> bool:
    """Return whether the catalog's policies differ from those that were known before, so that each node is judged anew."""
    before, after = ((one.policies, one.answered_at is None) if one is not None else ((), False) for one in (known.policies, policies))
    return before != after


def _stands_still(known: KnownTable, whole: Complete | Empty, head: TableHead) -> bool:
    """Return whether the files of the head are those that were read last."""
    files_at = head.layout.kind.files_at
    return files_at(known.index.last_snapshot_id, whole.metadata_location) == files_at(head.snapshot_id, head.metadata_location)


def _loaded(head: TableHead) -> LoadedTable:
    return LoadedTable(head.table_uuid, head.layout)
