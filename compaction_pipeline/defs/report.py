"""What a run tells Dagster while it works: an event per node and per record as they are committed, and the checks.

Keeps account of what failed; `close` raises `dg.Failure` when anything did, after everything good was told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.defs.checks import evaluations
from compaction_pipeline.defs.health_metadata import status_metadata
from compaction_pipeline.defs.keys import COMPACTED_FILES, TABLE_HEALTH
from compaction_pipeline.defs.metadata import table_of
from compaction_pipeline.defs.mirror import events_of
from compaction_pipeline.defs.observing import observations
from compaction_pipeline.defs.partitions import MOST_NODES, table_nodes, tables
from compaction_pipeline.defs.work_metadata import nothing_merged
from compaction_pipeline.services.compact_table import Compaction as Compacted

# Reasons that leave a launched node green: there was nothing to do. Any other means that it was asked for and not done.
_NOTHING_TO_DO = frozenset({PlanReasonCode.NO_GAIN, PlanReasonCode.NOT_FRAGMENTED, PlanReasonCode.EMPTY_TABLE, PlanReasonCode.PLANNED})

Context = dg.AssetExecutionContext | dg.OpExecutionContext


class RunReport:
    """The account of one run."""

    def __init__(self, context: Context, services: Services) -> None:
        self._context = context
        self._services = services
        self._failed: dict[str, str] = {}
        self._tasks_count = 0
        self._evaluate_from = 0.0
        self._records: list[CompactionRecord] = []

    @property
    def records(self) -> tuple[CompactionRecord, ...]:
        """The records told so far."""
        return tuple(self._records)

    def unknown(self, key: str, reason: str) -> None:
        """A key that no table holds."""
        self._fail(key, reason)

    def not_done(self, what: Iterable[str], error: CompactionError) -> None:
        """Keys, or a table, of which nothing could be done; the other tables of the run go on."""
        for key in what:
            self._fail(key, str(error))

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        """An attempt's end, as a line of the run's log."""
        self._tasks_count += 1
        result = task.result
        if result is not None and result.error is not None:
            self._context.log.warning(f"{task.table} {task.work.node} task={task.task_id} attempt {task.attempt} failed: {result.error}")
        elif result is not None:
            self._context.log.info(
                f"{task.table} {task.work.node} task={task.task_id} {status.value}: {len(task.work.inputs)} → {len(result.outputs)} file(s)"
                f", {result.rows_written} rows in {duration_text(timedelta(milliseconds=result.duration_ms))}"
            )

    def committed(self, record: CompactionRecord) -> None:
        """A record was closed by this run: tell its events and remember that they were told."""
        self._records.append(record)
        events = events_of(record, self._services.mirror_records.tasks(record))
        self._add_partitions(events)
        for event in events:
            self._context.log_event(event)
        if record.status is RecordStatus.UNKNOWN:
            self._fail(
                str(record.table), f"the outcome of record {record.record_id} is unknown and settled at the next tick: {record.reason}"
            )
            return
        self._services.mirror_records.told([record.record_id])
        if record.conflicts:
            self._context.log.warning(f"{record.table} record={record.record_id}: {len(record.conflicts)} conflict(s), planned again")
        if time.monotonic() >= self._evaluate_from:
            self._evaluate()

    def task_failures(self, failed: Mapping[TaskId, str]) -> None:
        """Tasks that used up their retries (task id → reason)."""
        for task_id, reason in failed.items():
            self._fail(f"task {task_id}", reason)

    def compacted(self, outcome: Compacted, nodes: Mapping[str, TableNode]) -> None:
        """How a launched table ended: its records, then each node without a committed task, green or failed with its reason."""
        for record in outcome.records:
            self.committed(record)
        committed = {task.work.node for task in outcome.tasks if task.task_id in set(outcome.committed)}
        failed = {task.work.node: outcome.failed[task.task_id] for task in outcome.tasks if task.task_id in outcome.failed}
        rejected = {task.work.node: outcome.conflicts[task.task_id] for task in outcome.tasks if task.task_id in outcome.conflicts}
        planned = {task.work.node for task in outcome.tasks}
        verdicts = {verdict.node: verdict.reason for verdict in outcome.plan.verdicts}
        for key, node in nodes.items():
            if node in failed:
                self._fail(key, failed[node])
            elif node in committed:
                continue
            elif node in planned:
                self._fail(key, rejected.get(node) or outcome.waiting or "merged but not committed")
            else:
                reason = verdicts.get(node, outcome.plan.reason)
                # Who holds the files is told instead of the plan's own reason, which counts them as missing; no failure, as on the
                # command line.
                held = outcome.waiting if not outcome.tasks else None
                if held is not None or reason.code in _NOTHING_TO_DO:
                    metadata = nothing_merged(str(node), str(outcome.table), held or reason.text)
                    self._context.log_event(dg.AssetMaterialization(COMPACTED_FILES, partition=key, metadata=metadata))
                else:
                    self._fail(key, reason.text)

    def close(self) -> None:
        """Tell the state of everything after this run, and fail the run if anything failed."""
        for table in {record.table: None for record in self._records if record.committed_task_ids}:
            self._look_again(table)
        self._context.log_event(dg.AssetObservation(TABLE_HEALTH, metadata=status_metadata(self._services.read_status.status())))
        self._evaluate()
        if self._failed:
            rows = [{"what": what, "reason": reason} for what, reason in self._failed.items()]
            first = rows[0]
            raise dg.Failure(
                f"{len(rows)} failed, the rest is committed; {first['what']}: {first['reason']}",
                metadata={"failed": table_of(rows, (("what", "string", "node, task or table"), ("reason", "string", "why")))},
                allow_retries=False,
            )

    def _evaluate(self) -> None:
        """Tell the checks: of a materialization that is newer than its checks the UI says that they were not evaluated.

        A run of minutes commits all the time; a twentieth of it at most goes into judging.
        """
        started = time.monotonic()
        for evaluation in evaluations(self._services.judge_compaction):
            self._context.log_event(evaluation)  # type: ignore[arg-type]  # taken since 1.12; the annotation is behind
        ended = time.monotonic()
        self._evaluate_from = ended + 20 * (ended - started)

    def _look_again(self, table: TableIdentifier) -> None:
        """Measure a table that was just committed: what the run shows, and the checks judge, is what it left behind."""
        try:
            refresh = self._services.compact_table.refresh(table)
            self._services.plan_tables.judge(table)
        except CompactionError as error:
            self._context.log.warning(f"{table} was committed but not looked at again: {error}")
            return
        partitions = frozenset(self._context.instance.get_dynamic_partitions(str(table_nodes.name)))
        for event in observations(self._services, {table: frozenset(refresh.changed)}, partitions):
            self._context.log_event(event)

    def _fail(self, what: str, reason: str) -> None:
        self._context.log.error(f"{what}: {reason}")
        self._failed[what] = reason

    def _add_partitions(self, events: list[dg.AssetMaterialization]) -> None:
        """Keys that are not partitions yet: their events would never be seen."""
        instance = self._context.instance
        for definition, most in ((table_nodes, MOST_NODES), (tables, None)):
            name = str(definition.name)
            wanted = sorted(
                {str(event.partition) for event in events if (event.asset_key == COMPACTED_FILES) == (definition is table_nodes)}
            )
            new = [key for key in wanted if not instance.has_dynamic_partition(name, key)]
            if most is not None and new:
                new = new[: max(0, most - len(instance.get_dynamic_partitions(name)))]
            if new:
                instance.add_dynamic_partitions(name, new)
