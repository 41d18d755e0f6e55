"""Keeps the index of every table's live files: manifest list against manifest list, nothing when the head stood still.

Invariant: a table is `complete` only while its indexed files are exactly those of `known_snapshot_id`; it stops being so
before the first file changes, so a process killed in between leaves a table that is read again, never one that is planned
from a mixture. Only nodes whose files changed are measured; the store remembers them until their figures are stored.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CompactionError, NotFoundError, TableRefused
from compaction_pipeline.core.fragmentation.metrics import measure, same_content
from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.leases.holders import LeaseHolder
from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.planning.ports import TableState, TableStore
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.live_files import TableFiles, manifest_changes
from compaction_pipeline.core.tables.node import TableNode, node_key
from compaction_pipeline.core.tables.ports import CatalogStore, FileStore, TableScan, TouchedNode
from compaction_pipeline.core.tables.properties import TableProperties, resolve_properties
from compaction_pipeline.core.tables.table import ManifestRef, TableHead, TableIdentifier, TableLayout

log = logging.getLogger(__name__)

# Files read between two looks at the clock; also the size of one transaction of a first look.
BATCH_FILES = 20_000
# Files held in memory while nodes are measured; a larger node is held by itself.
MEASURED_FILES = 50_000
# Up to so many nodes are looked up one by one; beyond that the whole table is read through, which costs less.
FEW_NODES = 500


@dataclass(frozen=True, slots=True)
class Refresh:
    """What one refresh found. `changed` are the nodes whose files changed; `busy`: another process refreshes the table, `held_by` it.

    `problem` is what a person should know; `error` is set where it kept the table from being read (a refusal does not).
    """

    table: TableIdentifier
    head_moved: bool = False
    complete: bool = True
    busy: bool = False
    held_by: LeaseHolder | None = None
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
        heartbeat: Heartbeat,
        new_owner: Callable[[], str],
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._files = files
        self._leases = leases
        self._scan = scan
        self._clock = clock
        self._heartbeat = heartbeat
        self._new_owner = new_owner

    def unmoved(self) -> Collection[TableIdentifier]:
        """Tables whose metadata lies where it lay when their state was stored: nothing of them needs to be read.

        Only of catalogs that say so of all their tables at once; one that fails is left to `refresh`, which says why table by table.
        """
        seen = self._tables.seen()
        unmoved: set[TableIdentifier] = set()
        for catalog in {table.catalog for table in seen}:
            try:
                locations = self._scan.locations(catalog)
            except CompactionError as error:
                log.debug("catalog=%s does not say where its tables lie: %s", catalog, error)
                continue
            unmoved.update(table for table, location in locations.items() if location == seen.get(table))
        return unmoved

    def refresh(self, table: TableIdentifier, deadline: datetime | None = None) -> Refresh:
        """Bring the index of one table to its head; past `deadline` it stops between two manifests and goes on next time.

        A table that cannot be read keeps its files, shows the problem and is not planned until it can.
        Raises NotFoundError when the table is gone.
        """
        owner = self._new_owner()
        name = f"refresh:{table}"
        if not self._leases.acquire(name, owner, self._clock(), LEASE):
            return Refresh(table, complete=False, busy=True, held_by=self._leases.holder(name, self._clock()))

        def renew() -> bool:
            return self._leases.renew(name, owner, self._clock(), LEASE)

        try:
            # The renewals on the way tell when it was lost; one manifest, or one transaction, may take longer than it.
            with self._heartbeat(renew):
                return self._refresh(table, deadline, renew)
        except NotFoundError:
            log.info("table=%s is gone: forgotten", table)
            self._tables.forget(table)
            raise
        except TableRefused as refusal:
            self._note(table, {"refusal": str(refusal), "complete": False, "metadata_location": None})
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
        if _measures_differ(state.layout, head.layout):
            # Before the layout is stored: whoever finds it stored finds the nodes touched too.
            self._files.touch(table)
            # Thresholds are others now: every node is judged anew.
            self._tables.save_nodes(table, [replace(node, verdict=None) for node in self._tables.nodes(table)])
        if head.refusal is not None:
            self._tables.update(
                table,
                {
                    "refusal": head.refusal,
                    "complete": False,
                    "problem": None,
                    "table_uuid": head.table_uuid,
                    "metadata_location": head.metadata_location,
                    **self._layout_changes(state, head),
                },
            )
            return Refresh(table, complete=False, problem=head.refusal)
        if state.complete and state.known_snapshot_id == head.snapshot_id and state.refusal is None:
            self._still(state, head, renew)
            return Refresh(table)
        problem = self._property_problem(head)
        self._tables.update(
            table,
            {
                "complete": False,
                "metadata_location": None,
                "head_snapshot_id": head.snapshot_id,
                "table_uuid": head.table_uuid,
                "refusal": None,
                "problem": problem,
                **self._layout_changes(state, head),
                "warning": _foreign_rewrite(head, state.known_snapshot_id) or state.warning,
            },
        )
        manifests = self._scan.manifests(table, head.snapshot_id) if head.snapshot_id is not None else ()
        changes = manifest_changes(self._files.manifests(table), manifests)
        # Before their files are indexed: a refresh that goes on later finds them no longer added.
        self._note_old_spec_deletes(table, head, changes.added)
        if not self._apply(table, changes.removed, changes.added, deadline, renew):
            log.info("table=%s first look goes on at the next tick", table)
            return Refresh(table, head_moved=True, complete=False, problem=problem)
        changed = self._measure(table, head, renew)
        self._tables.update(
            table,
            {
                "complete": True,
                "metadata_location": head.metadata_location,
                "known_snapshot_id": head.snapshot_id,
                "known_sequence_number": head.sequence_number,
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

    def _still(self, state: TableState, head: TableHead, renew: Callable[[], bool]) -> None:
        """Properties, schemas and specs change without a snapshot."""
        problem = self._property_problem(head)
        if state.layout != head.layout or state.problem != problem:
            if _measures_differ(state.layout, head.layout):
                self._measure(state.table, head, renew)
            self._tables.update(state.table, {"problem": problem, **self._layout_changes(state, head)})
        if state.metadata_location != head.metadata_location:
            self._tables.update(state.table, {"metadata_location": head.metadata_location})

    def _apply(
        self,
        table: TableIdentifier,
        removed: Iterable[str],
        added: Sequence[ManifestRef],
        deadline: datetime | None,
        renew: Callable[[], bool],
    ) -> bool:
        """Answers whether all was read, and the removed ones dropped."""
        with _without_cycle_search():
            return self._apply_in_batches(table, removed, added, deadline, renew)

    def _apply_in_batches(
        self,
        table: TableIdentifier,
        removed: Iterable[str],
        added: Sequence[ManifestRef],
        deadline: datetime | None,
        renew: Callable[[], bool],
    ) -> bool:
        batch: dict[str, Sequence[LiveFile]] = {}
        count = 0
        for manifest in added:
            if deadline is not None and self._clock() >= deadline:
                self._files.apply(table, (), batch)
                return False
            files = self._scan.live_files(table, manifest)
            batch[manifest.path] = list(files)
            count += len(batch[manifest.path])
            if count >= BATCH_FILES:
                if not renew():
                    # Another process took over while this one slept; what it reads is newer.
                    return False
                self._files.apply(table, (), batch)
                batch, count = {}, 0
        if not renew():
            return False
        self._files.apply(table, removed, batch)
        return True

    def _measure(self, table: TableIdentifier, head: TableHead, renew: Callable[[], bool]) -> tuple[TableNode, ...]:
        """Store figures of every node whose files changed; answers those nodes."""
        touched = self._files.touched(table)
        if not touched:
            return ()
        known = {state.node: state for state in self._tables.nodes(table, touched)}
        unpartitioned = head.layout.unpartitioned_spec_ids
        global_before = any(node.spec_id in unpartitioned and state.metrics.equality_delete_files for node, state in known.items())
        if global_before or self._files.has_global_deletes(table, unpartitioned):
            # Such a delete counts in every node.
            return self._measure_all(table, head, touched)
        properties = self._properties(head)
        some = list(touched) if len(touched) <= FEW_NODES else None
        figures = self._files.figures(table, properties.fragment_size_bytes, properties.undersized_bytes, some)
        crossed = self._files.crossed(table, some)
        # Rows thought deleted are estimated from the files; without deletes sums say it all.
        summed = {
            node: figures[node].metrics
            for node in touched
            if node in figures and node not in crossed and not figures[node].metrics.delete_files
        }
        gone = [node for node, found in touched.items() if not found.files]
        changed = list(self._store(table, head, summed, touched, known))
        self._files.settle(table, summed)
        for nodes in _batches({node: found.files for node, found in touched.items() if node not in summed}):
            measured = measure(_table_files(head, self._files.files(table, nodes)), properties)
            changed += self._store(table, head, {node: measured[node] for node in nodes if node in measured}, touched, known)
            self._files.settle(table, nodes)
            renew()
        self._tables.remove_nodes(table, gone)
        self._files.settle(table, gone)
        return tuple(changed)

    def _measure_all(self, table: TableIdentifier, head: TableHead, touched: Mapping[TableNode, TouchedNode]) -> tuple[TableNode, ...]:
        known = {state.node: state for state in self._tables.nodes(table)}
        measured = measure(_table_files(head, self._files.files(table)), self._properties(head))
        changed = self._store(table, head, measured, touched, known)
        self._tables.remove_nodes(table, [node for node in known if node not in measured])
        self._files.settle(table, list(touched))
        return changed

    def _store(
        self,
        table: TableIdentifier,
        head: TableHead,
        measured: Mapping[TableNode, NodeMetrics],
        touched: Mapping[TableNode, TouchedNode],
        known: Mapping[TableNode, NodeState],
    ) -> tuple[TableNode, ...]:
        """Answers the nodes that are others than they were: another set of files, or other figures."""
        others = {node for node, found in touched.items() if found.changed}
        changed = tuple(node for node, metrics in measured.items() if node not in known or node in others or known[node].metrics != metrics)
        # Another threshold counts files anew, and changes nothing that a reader of the node would see.
        moved = {node for node in changed if node not in known or node in others or not same_content(known[node].metrics, measured[node])}
        now = self._clock()
        states = [
            NodeState(
                table,
                node,
                node_key(table, node),
                metrics,
                first_seen=now,
                changed_snapshot_id=head.snapshot_id if node in moved else known[node].changed_snapshot_id,
                verdict=known[node].verdict if node in known else None,
                failing=known[node].failing if node in known else None,
            )
            for node, metrics in measured.items()
        ]
        self._tables.save_nodes(table, states)
        return changed

    def _layout_changes(self, state: TableState, head: TableHead) -> dict[str, object]:
        """What is written with the layout, in one statement: an evolution of the spec counts as a delete of the old one.

        Its writers may still run, and once the layout is stored nothing else tells of the evolution.
        """
        evolved = state.layout is not None and state.layout.default_spec_id != head.layout.default_spec_id
        return {"layout": head.layout, **({"last_old_spec_delete_at": self._clock()} if evolved else {})}

    def _note_old_spec_deletes(self, table: TableIdentifier, head: TableHead, added: Sequence[ManifestRef]) -> None:
        """When a delete of an old spec was last committed; now, where that cannot be told."""
        state = self._tables.state(table)
        old = [manifest for manifest in added if manifest.spec_id != head.layout.default_spec_id]
        now = self._clock()
        committed_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in head.ancestors}
        times = [state.last_old_spec_delete_at] if state.last_old_spec_delete_at is not None else []
        for manifest in old:
            if manifest.content == "DELETES":
                ms = committed_ms.get(manifest.added_snapshot_id)
                times.append(now if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc))
        if old and state.known_snapshot_id is None and head.layout.format_version > 1:
            # A first look does not know when the spec evolved, nor who still writes by the old one.
            times.append(now)
        if times and max(times) != state.last_old_spec_delete_at:
            self._tables.update(table, {"last_old_spec_delete_at": max(times)})

    def _properties(self, head: TableHead) -> TableProperties:
        try:
            return resolve_properties(head.layout.properties, self._catalogs.entry(head.table.catalog).properties)
        except CompactionError:
            return TableProperties()

    def _property_problem(self, head: TableHead) -> str | None:
        try:
            resolve_properties(head.layout.properties, self._catalogs.entry(head.table.catalog).properties, head.table)
        except CompactionError as error:
            return str(error)
        return None


@contextmanager
def _without_cycle_search() -> Iterator[None]:
    """Keep Python's collector of cycles from walking millions of new objects that hold none, which costs half as much again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _measures_differ(known: TableLayout | None, now: TableLayout) -> bool:
    """Whether figures of files that stayed are others now: sizes that count as small, deletes that count as global."""
    return known is not None and (known.properties != now.properties or known.unpartitioned_spec_ids != now.unpartitioned_spec_ids)


def _batches(counts: Mapping[TableNode, int]) -> Iterator[list[TableNode]]:
    """Nodes that hold files, in groups of at most `MEASURED_FILES` files or one node."""
    batch: list[TableNode] = []
    held = 0
    for node, count in counts.items():
        if batch and held + count > MEASURED_FILES:
            yield batch
            batch, held = [], 0
        if count:
            batch.append(node)
            held += count
    if batch:
        yield batch


def _table_files(head: TableHead, files: Sequence[LiveFile]) -> TableFiles:
    return TableFiles(
        head.table,
        head.table_uuid,
        head.snapshot_id or 0,
        head.sequence_number,
        head.layout.format_version,
        head.layout.schema_id,
        head.layout.default_spec_id,
        head.layout.unpartitioned_spec_ids,
        tuple(files),
    )


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
