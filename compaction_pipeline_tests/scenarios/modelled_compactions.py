"""Compactions of a modelled table in three steps: plan, merge and commit. Anything may happen between two steps.

The class calls the planner, the engine and the committer directly, without services or a state database. It holds the Pending
and Prepared tasks itself, and follows the rules of the state database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from random import Random
from typing import get_args

from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.planning.plain.planner import plan
from compaction_pipeline.core.planning.plan import Budget, CompactionPlan, PlanRequest
from compaction_pipeline.core.queue.open_work import InUse
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.live_files import TableFiles
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.core.tables.sort_order import order_of_full
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline.iceberg.table_scan import IcebergScan
from compaction_pipeline_tests.reference_reader import local_path
from compaction_pipeline_tests.scenarios.modelled_table import ModelledTable

_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_BUDGET = Budget(task_slots=1_000, input_bytes=1 << 40)


class ModelledCompactions:
    """The tasks of one modelled table: `pending` are planned, `prepared` are merged, and `records` are committed under a record id."""

    def __init__(self, table: ModelledTable, engine: MergeEngine) -> None:
        self._table = table
        self._engine = engine
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, table.catalog_properties))
        self._scan = IcebergScan(self.catalogs)
        self.pending: list[CompactionTask] = []
        self.prepared: list[CompactionTask] = []
        self.records: list[tuple[str, tuple[CompactionTask, ...]]] = []
        self.committed: Counter[str] = Counter()
        self.conflicts: list[str] = []
        self._numbers = count(1)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def plan(self, rng: Random) -> None:
        """Plan what is due, or force one type. Sometimes plan as if no file were in use, as after the loss of the state database."""
        forgetful = rng.random() < 0.15
        self._plan(_random_request(rng), InUse() if forgetful else self._in_use())

    def merge(self, rng: Random) -> None:
        """Merge some of the pending tasks. When there are none, plan first."""
        if not self.pending:
            self.plan(rng)
        self._merge([task for task in self.pending if rng.random() < 0.7])

    def commit(self, rng: Random, meanwhile: Callable[[], None] | None = None) -> None:
        """Commit some of the prepared tasks. `meanwhile` runs between two steps of the commit, for example another writer's commit."""
        if not self.prepared:
            self.merge(rng)
        chosen = [task for task in self.prepared if rng.random() < 0.8]
        # The state database claims the tasks of a group together, and only when none of them is Pending or Executing.
        groups = {task.work.group for task in chosen if task.work.group}
        waiting = {task.work.group for task in self.pending}
        chosen = [task for task in self.prepared if (task.work.group in groups - waiting if task.work.group else task in chosen)]
        if chosen:
            self._commit(chosen, _Interruption(rng.choice(get_args(CommitStep)), meanwhile))

    def commit_again(self, rng: Random) -> None:
        """Commit a record again, as a process does that did not get the catalog's answer. Nothing may be committed twice."""
        if not self.records:
            return
        record_id, tasks = rng.choice(self.records)
        before = self._table.head_id()
        snapshots = [snapshot for snapshot in self._table.table.metadata.snapshots if self._record_of(snapshot) == record_id]
        if not snapshots:
            # The record's snapshots have expired. Now only its files show that it was committed, and a later commit may have replaced them.
            # Then the commit reports conflicts.
            known = self._snapshots_of_main()
            if not known:
                return
        outcome = IcebergCommitter(self.catalogs).commit(self._table.identifier, record_id, tasks)
        if snapshots:
            assert outcome.state is CommitState.COMMITTED, outcome
            assert self._table.head_id() == before, "a record was committed twice"

    def compact(self, rng: Random) -> None:
        """Plan, merge and commit while nobody else writes. Nothing may conflict."""
        request = _random_request(rng)
        kept = self.pending, self.prepared
        self.pending, self.prepared = [], []
        made = self.plan_and_merge(request, InUse())
        assert len(self.prepared) == len(made.tasks)
        if self.prepared:
            outcome = self._commit(list(self.prepared), _Interruption("never", None))
            assert not outcome.conflicts, f"a conflict although nobody else wrote: {outcome.conflicts}"
        self.pending, self.prepared = kept

    def plan_and_merge(self, request: PlanRequest, in_use: InUse) -> CompactionPlan:
        """Plan, and merge all tasks of the plan."""
        made = self._plan(request, in_use)
        self._merge(list(self.pending))
        return made

    def committer(self) -> IcebergCommitter:
        """A new committer, as another process would have."""
        return IcebergCommitter(self.catalogs)

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _plan(self, request: PlanRequest, in_use: InUse) -> CompactionPlan:
        head = self._scan.head(self._table.identifier)
        assert head.refusal is None, head.refusal
        manifests = self._scan.manifests(self._table.identifier, head.snapshot_id) if head.snapshot_id is not None else ()
        files = TableFiles(
            self._table.identifier,
            head.table_uuid,
            head.snapshot_id or 0,
            head.sequence_number,
            head.layout.format_version,
            head.layout.schema_id,
            head.layout.default_spec_id,
            head.layout.unpartitioned_spec_ids,
            tuple(file for manifest in manifests for file in self._scan.live_files(self._table.identifier, manifest)),
            order_of_full(head.layout),
        )
        properties = resolve_properties(head.layout.properties, {})
        made = plan(files, in_use, properties, request, NodeHistory(), _BUDGET, _NOW)
        plan_id = f"plan{next(self._numbers)}"
        self.pending = [task for task in self.pending if task.task_id not in made.replaces]
        for work in made.tasks:
            name = f"task{next(self._numbers)}t"
            self.pending.append(
                CompactionTask(
                    task_id=name,
                    plan_id=plan_id,
                    table=self._table.identifier,
                    table_uuid=head.table_uuid,
                    snapshot_id=head.snapshot_id or 0,
                    sequence_number=head.sequence_number,
                    schema_id=head.layout.schema_id,
                    queue="default",
                    priority=0,
                    max_attempts=1,
                    memory_bytes=properties.task_memory_bytes,
                    created_at=_NOW,
                    # Group names are unique only within a plan.
                    work=replace(work, group=f"{plan_id}/{work.group}" if work.group else ""),
                )
            )
        return made

    def _merge(self, tasks: Sequence[CompactionTask]) -> None:
        running = [
            replace(task, status=TaskStatus.EXECUTING, attempt=1, attempt_id=f"attempt{next(self._numbers)}a", owner="model")
            for task in tasks
        ]
        by_id = {task.task_id: task for task in running}
        self.pending = [task for task in self.pending if task.task_id not in by_id]
        layout = self._scan.head(self._table.identifier).layout
        file_io = IcebergCommitter(self.catalogs).file_io(self._table.identifier)
        results = {result.task_id: result for result in self._engine.merge([task.merge_input(layout) for task in running], file_io)}
        assert results.keys() == by_id.keys()
        for task_id, result in results.items():
            task = by_id[task_id]
            if result.error is None:
                assert result.digest_read == result.digest_written
                self.prepared.append(replace(task, status=TaskStatus.PREPARED, result=result))
            else:
                gone = [file.path for file in (*task.work.inputs, *task.work.deletes) if not Path(local_path(file.path)).exists()]
                assert gone, f"merge of {task.work.type} {task.work.action} failed though every file is there: {result.error}"

    def _commit(self, tasks: Sequence[CompactionTask], interruption: _Interruption) -> CommitOutcome:
        record_id = f"record{next(self._numbers)}"
        ids = {task.task_id for task in tasks}
        self.prepared = [task for task in self.prepared if task.task_id not in ids]
        outcome = IcebergCommitter(self.catalogs, on_step=interruption).commit(self._table.identifier, record_id, tasks)
        assert outcome.state is not CommitState.UNKNOWN, outcome
        committed, conflicts = set(outcome.committed), set(outcome.conflicts)
        assert not committed & conflicts
        assert committed | conflicts == ids
        assert (outcome.state is CommitState.COMMITTED) == bool(committed), outcome
        self.committed.update(f"{task.work.type.value} {task.work.action.value}" for task in tasks if task.task_id in committed)
        self.conflicts += outcome.conflicts.values()
        if not interruption.ran_after_the_swap:
            # Otherwise somebody may have rolled the commit back, or expired its snapshot.
            self._check_committed([task for task in tasks if task.task_id in committed])
            self._check_history(record_id, bool(committed))
        if committed:
            self.records.append((record_id, tuple(task for task in tasks if task.task_id in committed)))
        else:
            paths = [output.path for task in tasks if task.result for output in task.result.outputs]
            IcebergCommitter(self.catalogs).delete_orphans(self._table.identifier, tasks[0].table_uuid, paths)
        return outcome

    def _check_committed(self, tasks: Sequence[CompactionTask]) -> None:
        self._table.reload()
        live = {file.path: file for file in self._table.live_files()}
        for task in tasks:
            outputs = task.result.outputs if task.result else ()
            if task.work.action is TaskAction.MERGE:
                assert not [file.path for file in task.work.inputs if file.path in live], "an input of a committed merge is live"
                for output in outputs:
                    assert live[output.path].data_sequence_number == task.sequence_number, "a merged file has the plan's sequence number"
            if task.work.action is TaskAction.CONVERT:
                assert all(output.content is FileContent.POSITION_DELETES for output in outputs)
                assert all(file.path in live for file in task.work.inputs), "a converted file stays"

    def _check_history(self, record_id: str, committed: bool) -> None:
        ours = [snapshot for snapshot in self._table.table.metadata.snapshots if self._record_of(snapshot) == record_id]
        operations = [snapshot.summary.operation.value for snapshot in ours if snapshot.summary]
        assert operations in ([["replace"], ["overwrite"], ["replace", "overwrite"]] if committed else [[]]), operations
        for snapshot in ours:
            # Each snapshot of a commit shows the rows of its parent. This holds for the first of two snapshots too.
            self._table.history[snapshot.snapshot_id] = self._table.history[snapshot.parent_snapshot_id]

    @staticmethod
    def _record_of(snapshot: object) -> str | None:
        summary = getattr(snapshot, "summary", None)
        return None if summary is None else summary.additional_properties.get(RECORD_ID_PROPERTY)

    def _snapshots_of_main(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self._table.table.metadata.snapshots]

    def _in_use(self) -> InUse:
        return InUse(
            paths=frozenset(file.path for task in self.prepared for file in task.work.inputs),
            exclusive_nodes=frozenset(task.work.node for task in self.prepared if task.work.type is not CompactionType.MINOR),
            pending={file.path: task.task_id for task in self.pending for file in task.work.inputs},
        )


class _Interruption:
    """Runs a function once, when a commit reaches a step."""

    def __init__(self, step: str, run: Callable[[], None] | None) -> None:
        self._step = step
        self._run = run
        self.ran_after_the_swap = False

    def __call__(self, step: str) -> None:
        if step == self._step and self._run is not None:
            run, self._run = self._run, None
            self.ran_after_the_swap = step == "after-swap"
            run()


def _random_request(rng: Random) -> PlanRequest:
    kind = rng.choice((None, CompactionType.MINOR, CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL))
    return PlanRequest() if kind is None else PlanRequest(types=(kind,), force=True)
