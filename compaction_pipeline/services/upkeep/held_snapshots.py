"""Tells which snapshots of a table this program itself still needs, and why none of them may go at all."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import by_kind


class HeldSnapshots:
    """Two verbs: of a table, and why_none_may_go."""

    def __init__(self, catalogs: CatalogStore, tables: TableReader, tasks: TaskStore, records: RecordStore) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._records = records

    def of(self, table: TableIdentifier) -> Mapping[int, str]:
        """Return the snapshots that open tasks were planned from, in either store, each with the reason."""
        open_tasks = [task for task in self._tasks.tasks(table) if not task.is_final]
        held = {task.snapshot_id: f"task {task.task_id} was planned from it" for task in open_tasks}
        for task in by_kind(open_tasks).to_base:
            held[task.work.changes.change_snapshot_id] = f"task {task.task_id} was planned from it"
        return held

    def why_none_may_go(self, table: TableIdentifier) -> str | None:
        """Say why nothing of a table may expire now; None when something may."""
        if self._catalogs.entry(table.catalog).observe:
            return f"catalog {table.catalog} is only observed: remove it and add it without --observe to let its snapshots expire"
        try:
            known = self._tables.state(table)
        except NotFoundError:
            known = None
        if known is not None and known.refusal is not None:
            return known.refusal
        if known is not None and known.paused:
            return f"a person paused it; `compaction-pipeline resume {table}` ends this"
        unsettled = self._records.records(table, limit=1, unsettled=True)
        if unsettled:
            return f"commit {unsettled[0].record_id} may still land; the next tick, or `compaction-pipeline compact {table}`, finds out"
        return None
