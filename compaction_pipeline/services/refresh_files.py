"""Keeps the index of every table's live files: manifest list against manifest list, nothing when the head stood still.

Invariant: a table is `complete` only while its indexed files are exactly those of `known_snapshot_id`; it stops being so
before the first file changes, so a process killed in between leaves a table that is read again, never one that is planned
from a mixture.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from compaction_pipeline.core.errors import CompactionError, NotFoundError, TableRefused
from compaction_pipeline.core.files.live_files import manifest_changes
from compaction_pipeline.core.fragmentation.metrics import measure
from compaction_pipeline.core.lifecycle.timeouts import LEASE
from compaction_pipeline.core.model.data_file import LiveFile
from compaction_pipeline.core.model.node import TableNode, node_key
from compaction_pipeline.core.model.plan import TableFiles
from compaction_pipeline.core.model.properties import TableProperties, resolve_properties
from compaction_pipeline.core.model.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.model.table import ManifestRef, TableHead, TableIdentifier
from compaction_pipeline.core.ports import (
    CatalogStore,
    Clock,
    FileStore,
    LeaseStore,
    NodeState,
    TableScan,
    TableState,
    TableStore,
)

log = logging.getLogger(__name__)

# Files read between two looks at the clock; also the size of one transaction of a first look.
BATCH_FILES = 20_000


@dataclass(frozen=True, slots=True)
class Refresh:
    """What one refresh found. `changed` are the nodes whose files changed; `busy`: another process refreshes the table.

    `problem` is what a person should know; `error` is set where it kept the table from being read (a refusal does not).
    """

    table: TableIdentifier
    head_moved: bool = False
    complete: bool = True
    busy: bool = False
    changed: tuple[TableNode, ...] = ()
    problem: str | None = None
    error: CompactionError | None = None


class RefreshFiles:
    """One verb: refresh."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableStore,
        files: FileStore,
        leases: LeaseStore,
        scan: TableScan,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._leases = leases
        self._scan = scan
        self._clock = clock
        self._new_id = new_id

    def refresh(self, table: TableIdentifier, deadline: datetime | None = None) -> Refresh:
        """Bring the index of one table to its head; past `deadline` it stops between two manifests and goes on next time.

        A table that cannot be read keeps its files, shows the problem and is not planned until it can.
        Raises NotFoundError when the table is gone.
        """
        owner = self._new_id()
        name = f"refresh:{table}"
        if not self._leases.acquire(name, owner, self._clock(), LEASE):
            return Refresh(table, complete=False, busy=True)
        try:
            return self._refresh(table, deadline, lambda: self._leases.renew(name, owner, self._clock(), LEASE))
        except NotFoundError:
            log.info("table=%s is gone: forgotten", table)
            self._tables.forget(table)
            raise
        except TableRefused as refusal:
            self._note(table, {"refusal": str(refusal), "complete": False})
            return Refresh(table, complete=False, problem=str(refusal))
        except CompactionError as error:
            log.warning("table=%s not refreshed: %s", table, error)
            # Not planned from what was read before: its merges would only use up their retries.
            self._note(table, {"problem": str(error), "complete": False})
            return Refresh(table, complete=False, problem=str(error), error=error)
        finally:
            self._leases.release(name, owner)

    def _note(self, table: TableIdentifier, changes: Mapping[str, object]) -> None:
        """Show what is wrong on the table, also on one that was never read before."""
        try:
            self._tables.update(table, changes)
        except NotFoundError:
            self._tables.save(TableState(table))
            self._tables.update(table, changes)

    def _refresh(self, table: TableIdentifier, deadline: datetime | None, renew: Callable[[], bool]) -> Refresh:
        head = self._scan.head(table)
        state = self._state(table, head)
        if head.refusal is not None:
            self._tables.update(
                table, {"refusal": head.refusal, "complete": False, "layout": head.layout, "problem": None, "table_uuid": head.table_uuid}
            )
            return Refresh(table, complete=False, problem=head.refusal)
        if state.complete and state.known_snapshot_id == head.snapshot_id and state.refusal is None:
            self._still(state, head)
            return Refresh(table)
        problem = self._property_problem(head)
        self._tables.update(
            table,
            {
                "complete": False,
                "head_snapshot_id": head.snapshot_id,
                "table_uuid": head.table_uuid,
                "layout": head.layout,
                "refusal": None,
                "problem": problem,
                "warning": _foreign_rewrite(head, state.known_snapshot_id) or state.warning,
            },
        )
        manifests = self._scan.manifests(table, head.snapshot_id) if head.snapshot_id is not None else ()
        changes = manifest_changes(self._files.manifests(table), manifests)
        finished, touched = self._apply(table, changes.removed, changes.added, deadline, renew)
        if not finished:
            log.info("table=%s first look goes on at the next tick", table)
            return Refresh(table, head_moved=True, complete=False, problem=problem)
        changed = self._measure(table, head, touched)
        self._tables.update(
            table,
            {
                "complete": True,
                "known_snapshot_id": head.snapshot_id,
                "known_sequence_number": head.sequence_number,
                "last_old_spec_delete_at": self._old_spec_delete_at(state, head, changes.added),
                "refreshed_at": self._clock(),
            },
        )
        return Refresh(table, head_moved=True, changed=changed, problem=problem)

    def _state(self, table: TableIdentifier, head: TableHead) -> TableState:
        try:
            state = self._tables.state(table)
        except NotFoundError:
            state = TableState(table)
            self._tables.save(state)
        if state.table_uuid is not None and state.table_uuid != head.table_uuid:
            # Dropped and made again under the same name: nothing that we know is about this table.
            log.warning("table=%s was recreated (uuid %s → %s): its state starts anew", table, state.table_uuid, head.table_uuid)
            self._tables.forget(table)
            state = TableState(table, paused=state.paused)
            self._tables.save(state)
            if state.paused:
                self._tables.pause(table, True)
        return state

    def _still(self, state: TableState, head: TableHead) -> None:
        """Properties, schemas and specs change without a snapshot."""
        problem = self._property_problem(head)
        if state.layout != head.layout or state.problem != problem:
            self._tables.update(state.table, {"layout": head.layout, "problem": problem})
            if state.layout is None or state.layout.properties != head.layout.properties:
                self._measure(state.table, head, ())

    def _apply(
        self,
        table: TableIdentifier,
        removed: Iterable[str],
        added: Sequence[ManifestRef],
        deadline: datetime | None,
        renew: Callable[[], bool],
    ) -> tuple[bool, set[TableNode]]:
        batch: dict[str, Sequence[LiveFile]] = {}
        touched: set[TableNode] = set()
        count = 0
        for manifest in added:
            if deadline is not None and self._clock() >= deadline:
                self._files.apply(table, (), batch)
                return False, touched
            files = list(self._scan.live_files(table, manifest))
            batch[manifest.path] = files
            touched.update(file.node for file in files)
            count += len(files)
            if count >= BATCH_FILES:
                if not renew():
                    # Another process took over while this one slept; what it reads is newer.
                    return False, touched
                self._files.apply(table, (), batch)
                batch, count = {}, 0
        if not renew():
            return False, touched
        self._files.apply(table, removed, batch)
        return True, touched

    def _measure(self, table: TableIdentifier, head: TableHead, touched: Iterable[TableNode]) -> tuple[TableNode, ...]:
        """Figures of every node; answers those that changed."""
        files = TableFiles(
            table,
            head.table_uuid,
            head.snapshot_id or 0,
            head.sequence_number,
            head.layout.format_version,
            head.layout.schema_id,
            head.layout.default_spec_id,
            head.layout.unpartitioned_spec_ids,
            tuple(self._files.files(table)),
        )
        measured = measure(files, self._properties(head))
        known = {state.node: state for state in self._tables.nodes(table)}
        touched_nodes = set(touched)
        changed = tuple(
            node for node, metrics in measured.items() if node not in known or node in touched_nodes or known[node].metrics != metrics
        )
        now = self._clock()
        states = [
            NodeState(
                table,
                node,
                node_key(table, node),
                metrics,
                first_seen=now,
                changed_snapshot_id=head.snapshot_id if node in set(changed) else known[node].changed_snapshot_id,
                verdict=known[node].verdict if node in known else None,
                failing=known[node].failing if node in known else None,
            )
            for node, metrics in measured.items()
        ]
        self._tables.save_nodes(table, states, remove_others=True)
        return changed

    def _old_spec_delete_at(self, state: TableState, head: TableHead, added: Sequence[ManifestRef]) -> datetime | None:
        """When a delete of an old spec was last committed; an evolution of the spec counts as one, as its writers still run."""
        if state.layout is not None and state.layout.default_spec_id != head.layout.default_spec_id:
            return self._clock()
        committed_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in head.ancestors}
        times = [
            datetime.fromtimestamp(committed_ms[manifest.added_snapshot_id] / 1000, timezone.utc)
            for manifest in added
            if manifest.content == "DELETES"
            and manifest.spec_id != head.layout.default_spec_id
            and manifest.added_snapshot_id in committed_ms
        ]
        return max((*times, *((state.last_old_spec_delete_at,) if state.last_old_spec_delete_at else ())), default=None)

    def _properties(self, head: TableHead) -> TableProperties:
        try:
            return resolve_properties(head.layout.properties, self._catalogs.entry(head.table.catalog).properties)
        except CompactionError:
            return TableProperties()

    def _property_problem(self, head: TableHead) -> str | None:
        try:
            resolve_properties(head.layout.properties, self._catalogs.entry(head.table.catalog).properties)
        except CompactionError as error:
            return str(error)
        return None


def _foreign_rewrite(head: TableHead, known_snapshot_id: int | None) -> str | None:
    """A warning when another tool rewrote the table since we looked: two compactors undo each other's work."""
    if known_snapshot_id is None:
        return None
    for snapshot in head.ancestors:
        if snapshot.snapshot_id == known_snapshot_id:
            return None
        if snapshot.operation == "replace" and RECORD_ID_PROPERTY not in snapshot.summary:
            tool = snapshot.summary.get("engine-name") or "another tool"
            return (
                f"snapshot {snapshot.snapshot_id} is a rewrite by {tool}: two compactors on one table undo each other's work; "
                "stop the other one, or pause this table"
            )
    return None
