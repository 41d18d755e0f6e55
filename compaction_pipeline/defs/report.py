"""What a run tells Dagster while it works: an event for each committed node and record, and the checks.

It notes what failed. When the run has told of everything that succeeded, `close` raises `dg.Failure` for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.fragmentation.verdict import NOTHING_TO_DO, PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.checks.every_check import CheckResult
from compaction_pipeline.core.insight.compaction import Compaction as Compacted
from compaction_pipeline.core.insight.listener import CompactionListener
from compaction_pipeline.core.insight.open_tasks import open_tasks_text
from compaction_pipeline.core.queue.attempts import is_tried_again
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text, duration_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.defs.check_events import checks_planned_in, log_evaluation, store_evaluations
from compaction_pipeline.defs.checks import evaluation
from compaction_pipeline.defs.draining import is_of_machine
from compaction_pipeline.defs.file_events import changed_nodes, file_events
from compaction_pipeline.defs.health_events import health_event, nobody_looks
from compaction_pipeline.defs.health_page import health_page
from compaction_pipeline.defs.metadata import Column, reasons_of, table_of
from compaction_pipeline.defs.mirror import events_of
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.partitions import KnownPartitions
from compaction_pipeline.defs.run_progress import RunProgress
from compaction_pipeline.defs.run_tags import RunTags
from compaction_pipeline.defs.runs import is_followed, is_of_backfill
from compaction_pipeline.defs.terminated import GO_ON, HOLD, is_by_person
from compaction_pipeline.defs.work_metadata import nothing_merged

# With these reasons a launched node is green, because there was nothing to do. Any other reason means that the work was not done.
_GREEN = NOTHING_TO_DO | {PlanReasonCode.PLANNED}

_AGAIN_SECONDS = 10

Context = dg.AssetExecutionContext | dg.OpExecutionContext


class RunReport(CompactionListener):
    """Keeps the account of one run.

    `launched` are the partitions that the run was launched for. Dagster counts each node that a run of a backfill materializes, so events
    of other nodes, which the run commits too, do not belong to the run. Without `launched` all events do.

    Dagster shows a check as not evaluated while a materialization of its asset is newer than what the check judged. So events of commits
    wait until the checks may be judged again, and the evaluations are stored right behind them. When the run dies before that,
    `commit_sensor` tells of these commits. A launched run tells at once, because its backfill counts what it told, and judges soon after.
    """

    def __init__(self, names: Names, context: Context, services: Services, launched: Iterable[str] | None = None) -> None:
        self._names = names
        self._launched = None if launched is None else frozenset(launched)
        self._context = context
        self._services = services
        self._partitions = KnownPartitions(names, context.instance)
        self._failed: dict[str, str] = {}
        self._evaluate_from = 0.0
        self._untold: list[CompactionRecord] = []
        self._has_news = False
        self._records: list[CompactionRecord] = []
        self._named: dict[str, str] = {}
        self._asked_for: Mapping[TableIdentifier, Iterable[str]] = {}
        self._tags = RunTags(context.instance, context.run.run_id)
        self._nodes: dict[str, str] = {}
        self._progress = RunProgress(context.log.info, self._open_tasks, services.merges_on)

    @property
    def records(self) -> tuple[CompactionRecord, ...]:
        """The records that were told so far."""
        return tuple(self._records)

    def unknown(self, key: str, reason: str) -> None:
        """Log that no table holds this key, and note it: the run fails at its end, which may be far away."""
        self._context.log.warning(f"{reason}; the run will fail for this name, whatever becomes of the others")
        self._fail(key, reason)

    def asked_for(self, names: Mapping[TableIdentifier, Iterable[str]]) -> None:
        """Remember by which names a person asked for a table: its own name, or keys of its nodes. When it cannot be planned, each fails."""
        self._asked_for = names

    def reading(self, table: TableIdentifier) -> None:
        """Log that a table is read and planned next."""
        self._tags.works_on(table)
        self._progress.line(f"{table}: reading its newest snapshot, then planning")

    def planned(self, table: TableIdentifier, tasks: Sequence[MergedWork[Work]], reason: str) -> None:
        """Log that a table was planned."""
        self._progress.line(f"{table}: {count_text(len(tasks), 'task')} planned; {reason}")
        self._progress.planned(tasks)

    def not_planned(self, table: TableIdentifier, error: CompactionError) -> None:
        """Note that this table could not be planned. Everything of it that was asked for fails."""
        self.not_done(self._asked_for.get(table, {}), error)

    def not_done(self, what: Iterable[str], error: CompactionError) -> None:
        """Note that nothing could be done for these keys, or for this table. The run goes on with other tables."""
        for key in what:
            self._fail(key, str(error))

    def engine_starts(self) -> None:
        """Log that Spark is being started."""
        self._progress.engine_starts()

    def engine_started(self) -> None:
        """Log that Spark has started."""
        self._progress.engine_started()

    def task_began(self, task: CompactionTask) -> None:
        """Log the first merge of the run."""
        self._tags.works_on(task.table)
        self._progress.task_began(task)

    def waits(self) -> None:
        """After some silence, log which merges are running."""
        self._progress.waits()
        self._tell_in_time()

    def committing(self, table: TableIdentifier, tasks: int) -> AbstractContextManager[None]:
        """Log that a table is committed, and from time to time that this goes on."""
        self._tags.works_on(table)
        return self._progress.committing(table, tasks)

    def task_ended(self, task: CompactionTask, status: TaskStatus) -> None:
        """An attempt ended. The run's log gets a line. The reason of a task that is not tried again comes at the end of the run."""
        progress, result = self._progress.task_ended(task, status), task.result
        name = self._named[task.task_id] = f"{task.table} {task.work.node} task={task.task_id}"
        if result is not None and result.error is not None and is_tried_again(task):
            when = "tried again" if status is TaskStatus.PENDING else "tried again later"
            self._context.log.warning(f"{name}: attempt {task.failures + 1} of {task.max_attempts} failed, {when}: {result.error}")
        elif result is not None and result.error is not None:
            self._progress.line(f"{name} {status.value}: the end of this run says why; {progress}")
        elif result is not None:
            outputs, took = count_text(len(result.outputs), "file"), duration_text(timedelta(milliseconds=result.duration_ms))
            self._progress.line(
                f"{name} {status.value}: {task.work.files_read} → {outputs}, {result.rows_written} rows in {took}; {progress}"
            )
        self._tell_in_time()

    def committed(self, record: CompactionRecord) -> None:
        """This run ended a record. Log its events now or soon, and remember then that Dagster knows of it."""
        self._records.append(record)
        self._tags.works_on(record.table)
        self._progress.settled([*record.task_ids, *record.failed])
        if record.status is RecordStatus.UNKNOWN:
            self._fail(
                str(record.table), f"the outcome of record {record.record_id} is unknown, and the next tick settles it: {record.reason}"
            )
            return
        self._untold.append(record)
        self._has_news = True
        if record.status is RecordStatus.COMMITTED:
            waited = f"; it {record.waited}" if record.waited else ""
            self._progress.line(
                f"{record.table} committed as snapshot {record.snapshot_after}: {_change(record)}, record {record.record_id}{waited}"
            )
        if record.conflicts:
            self._context.log.warning(
                f"{record.table} record={record.record_id}: {count_text(len(record.conflicts), 'conflict')}; the nodes are planned again"
            )
        if self._launched is not None:
            self._tell()
        self._tell_in_time()

    def task_failures(self, failed: Mapping[TaskId, str]) -> None:
        """These tasks failed. `failed` maps their ids to reasons."""
        for task_id, reason in failed.items():
            self._fail(self._named.get(task_id, f"task {task_id}"), reason)

    def compacted(self, outcome: Compacted, nodes: Mapping[str, TableNode]) -> None:
        """Report how the work on a launched table ended. Each node without a committed task becomes green or fails, with the reason."""
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
                held = outcome.held if _may_be_held(outcome, node, reason) else None
                if held is not None or reason.code in _GREEN:
                    # As on the command line, it is no failure that another process merges the node. The event names that process.
                    metadata = nothing_merged(str(node), str(outcome.table), held or reason.text)
                    self._context.log_event(dg.AssetMaterialization(self._names.compacted_files, partition=key, metadata=metadata))
                else:
                    self._fail(key, reason.text)

    @contextmanager
    def saying_what_is_left(self) -> Iterator[None]:
        """When the block is told to end, log in one sentence what the run did, what it leaves and who goes on."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            try:
                self._context.log.warning(self._left_over())
            except CompactionError as error:
                self._context.log.warning(f"terminated; what is left is not known, because the state database does not answer: {error}")
            raise

    def _left_over(self) -> str:
        commits = sum(record.status is RecordStatus.COMMITTED for record in self._records)
        left = open_tasks_text(self._services.read_tasks.queue_counts().open_tasks)
        if is_by_person(self._context.instance, self._context.run.run_id):
            until = f"{self._services.clock() + HOLD:%H:%M:%S} UTC"
            who = f"a person ended this run, so no sensor asks for another one before {until}; {GO_ON}"
        else:
            who = "the next run of `compact_job`, an optimizer or `serve` goes on"
        return f"terminated: {self._progress.done_text} and {count_text(commits, 'commit')} made; left: {left}; {who}"

    def close(self) -> None:
        """Tell how everything stands after this run, and fail the run if anything in it failed."""
        with self._progress.during("looking at the tables again and judging them"):
            for table in {record.table: None for record in self._records if record.committed_task_ids}:
                self._look_again(table)
            self._context.log_event(self._health())
            self._evaluate_at_end()
            self._tags.close()
        self.fail_if_anything_failed()

    @property
    def done_metadata(self) -> dict[str, dg.MetadataValue]:
        """The nodes that the run committed, for its page."""
        columns: tuple[Column[tuple[str, str]], ...] = (
            ("node", "string", "partition of compacted_files", lambda row: row[0]),
            ("what", "string", "what the merge did", lambda row: row[1]),
        )
        return {"nodes_count": dg.MetadataValue.int(len(self._nodes)), "nodes": table_of(sorted(self._nodes.items()), columns)}

    def fail_if_anything_failed(self, rest: str | None = None) -> None:
        """Raise `dg.Failure` with every reason when anything in this run failed. `rest` says what became of everything else."""
        if self._failed:
            rest = rest or (
                "the rest is committed" if any(record.committed_task_ids for record in self._records) else "nothing is committed"
            )
            what, reason = next(iter(self._failed.items()))
            # With one failure the sentence says everything, and a table would say it again.
            failed = {"failed": reasons_of(self._failed, ("what", "node, task or table"))} if len(self._failed) > 1 else {}
            table = {**failed, **(self.done_metadata if self._nodes else {})}
            # Most reasons name what failed.
            text = f"{len(self._failed)} failed, and {rest}; {reason if what in reason else f'{what}: {reason}'}"
            raise dg.Failure(text, metadata=table, allow_retries=False)

    def _health(self) -> dg.AssetMaterialization | dg.AssetObservation:
        status = self._services.read_status.status()
        history = self._services.watch_files.history(status.tables)
        # A run of a person proves that Dagster works. Runs of sensors go on for a while when nobody looks at the tables any more.
        silence = nobody_looks(self._services) if is_of_machine(self._context.run) else None
        return health_event(self._names, "at the end of this run", health_page(self._names, status, history, self._context), silence)

    def _tell_in_time(self) -> None:
        """After a commit, tell of it and judge, unless the checks were judged only just now.

        A long run commits all the time, so at most a twentieth of its time goes into judging. Merges are under way meanwhile, so an error
        must not end them: the next event, or the end of the run, tells and judges again. A run of a backfill judges at its end only.
        """
        if self._has_news and not is_of_backfill(self._context.run) and time.monotonic() >= self._evaluate_from:
            try:
                self._evaluate()
            except CompactionError as error:
                self._context.log.warning(f"the checks could not be judged now, and are judged again later: {error}")
                self._evaluate_from = time.monotonic() + _AGAIN_SECONDS

    def _tell(self) -> None:
        """Log the events of the commits that nobody was told of, and remember that Dagster knows of them."""
        for record in self._untold:
            events = events_of(self._names, record, self._services.mirror_records.tasks(record))
            # Nobody would ever see an event of a key that is no partition.
            self._partitions.add_nodes(str(event.partition) for event in events if event.asset_key == self._names.compacted_files)
            self._partitions.add_tables(str(event.partition) for event in events if event.asset_key == self._names.compaction_records)
            for event in events:
                self._log(event)
                if event.asset_key == self._names.compacted_files:
                    self._nodes[str(event.partition)] = event.description or ""
        self._services.mirror_records.told([record.record_id for record in self._untold])
        self._untold.clear()

    def _evaluate(self) -> tuple[CheckResult, ...]:
        """Judge, tell of commits, and store the evaluations as those of the newest materializations. Each stays in the history.

        Judging comes first, because it may take seconds. Until the evaluations are stored, the UI shows the checks as not evaluated. A run
        of a backfill leaves the checks to a later run of it.
        """
        if is_followed(self._context.instance, self._context.run):
            self._tell()
            self._has_news = False
            return ()
        started = time.monotonic()
        results = self._services.judge_compaction.judge(only_changed=True)
        self._tell()
        store_evaluations(self._names, self._context.instance, results, self._context.run.run_id)
        self._has_news = False
        ended = time.monotonic()
        self._evaluate_from = ended + 20 * (ended - started)
        return results

    def _evaluate_at_end(self) -> None:
        """Evaluate the checks for the last time: also those that Dagster announced for this run, which would else be shown as skipped."""
        results = self._evaluate()
        announced = checks_planned_in(self._context.instance, self._context.run.run_id)
        for result in results:
            # The step of a check that was left out here judges it, when a person launched that.
            if not result.evaluated or result.on_demand:
                continue
            if result.failed:
                self._context.log.warning(f"check {result.check.name} ({result.check.severity.value}): {result.judgement.text}")
            event = evaluation(self._names, result)
            if event.asset_check_key in announced:
                log_evaluation(self._context, event)

    def _look_again(self, table: TableIdentifier) -> None:
        """Measure a table that was just committed, so that the run and the checks show what the commit left behind."""
        refresh = self._services.one_table.look_again(table)
        if refresh.error is not None:
            self._context.log.warning(f"{table} was committed, but could not be read again: {refresh.error}")
        if not refresh.changed:
            return
        changed = changed_nodes(self._services, {table: frozenset(refresh.changed)})
        for event in file_events(self._names, changed, self._partitions.nodes):
            self._context.log_event(event)

    def _log(self, event: dg.AssetMaterialization) -> None:
        if self._launched is None or event.asset_key != self._names.compacted_files or event.partition in self._launched:
            self._context.log_event(event)
        else:
            self._context.instance.report_runless_asset_event(event)

    def _fail(self, what: str, reason: str) -> None:
        """Keep a failure for the end of the run. It is not logged here, because the run's error would then say it a second time."""
        self._failed[what] = reason

    def _open_tasks(self) -> int:
        queue = self._services.read_tasks.queue_counts()
        return queue.pending + queue.executing + queue.retrying


def _may_be_held(outcome: Compacted, node: TableNode, reason: PlanReason) -> bool:
    """Whether another process may be why nothing was planned on a node. A node with another reason of its own is not held.

    The plan's own reason does not count files that other processes hold, and may call them missing.
    """
    own = node in {verdict.node for verdict in outcome.plan.verdicts}
    return not own or reason.code is PlanReasonCode.FILES_IN_USE or (reason.code in _GREEN and not outcome.tasks)


def _change(record: CompactionRecord) -> str:
    return f"{record.figures.of_commit}; the table {record.figures.of_table}"
