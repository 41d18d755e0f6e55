"""Commits Prepared tasks: the Committer port. CONTRACT.md in this folder has every rule.

One attempt loads the table afresh, looks for an earlier landing, validates the tasks and takes out those that may not go in, writes
manifests, and swaps the catalog's pointer. It ends in one of three ways: committed; certainly not committed (a conflict, or a lost race
after which the commit begins again); or unknown. Nothing is deleted while an outcome is unknown.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.base_decision import decide_to_base, with_their_groups
from compaction_pipeline.core.commit.decision import CommitDecision, decide
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState, Look
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.commit.rewrite_decision import decide_rewrites, rewrites_changes
from compaction_pipeline.core.commit.validation import PathsIn
from compaction_pipeline.core.errors import (
    CommitConflict,
    CommitRefused,
    CompactionError,
    OutputUnusable,
    RacesLost,
    StorageUnavailable,
    TableRefused,
)
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.stores import is_keyed
from compaction_pipeline.core.tables.properties import rewrites_are_on
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.commit_answers import answer_in_words, answer_of, is_metadata_not_written, no_proof_in_words
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import counted_sends
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.file_io import file_io_properties, with_change_store
from compaction_pipeline.iceberg.head_reader import HeadReader, head_layout
from compaction_pipeline.iceberg.keyed.base_commit import (
    attach_statistics,
    keyed_head,
    load_for_commit,
    merges_changes,
    moved_sequences,
    stage_nothing,
)
from compaction_pipeline.iceberg.keyed.rewrite_commit import files_of_readers
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_known_stores
from compaction_pipeline.iceberg.keyed.without_key import refusal_of_part
from compaction_pipeline.iceberg.landing import (
    has_landed,
    head_id,
    landed_by_record,
    outputs_of,
    parents_of_attempts,
    settled,
)
from compaction_pipeline.iceberg.leftovers import check_writable, delete_orphans, leftovers, load_all, look, may_land
from compaction_pipeline.iceberg.manifests.entries import EntryCheck
from compaction_pipeline.iceberg.position_deletes import PositionDeletePaths
from compaction_pipeline.iceberg.rewrite_files import CommitStep, Transaction, delete_quietly
from compaction_pipeline.iceberg.scan import refusal_of_contents
from compaction_pipeline.iceberg.snapshot_changes import snapshot_changes
from compaction_pipeline.iceberg.task_outputs import TaskOutput, check_constants, commit_figures, outputs_are_live, prepared_output

_logger = logging.getLogger(__name__)


class IcebergCommitter:
    """The Committer on PyIceberg. `sleep` and `jitter` (0 to 1) are arguments, so that tests need no time."""

    def __init__(
        self,
        catalogs: Catalogs,
        *,
        on_step: Callable[[CommitStep], None] = lambda step: None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._catalogs = catalogs
        self._on_step = on_step
        self._sleep = sleep
        self._jitter = jitter

    def commit(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[CompactionTask]) -> CommitOutcome:
        """Validate the tasks at each attempt, and commit those that may go in.

        Raises NotFoundError if the table is gone, and TableRefused if it is not compacted. Raises StorageUnavailable if certainly
        nothing was committed and the same may work later: every race was lost, or the storage is full or unreachable.
        """
        return _Commit(self._catalogs, table, record_id, tasks, self._on_step, self._sleep, self._jitter).run()

    def settle(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[CompactionTask]) -> CommitOutcome:
        """Find out from the table how an earlier commit of this record ended. It writes nothing.

        The answer is UNKNOWN only while that commit may still land: an attempt left its manifest list, and main still is the snapshot on
        which the attempt was built. It is safe then to commit the same record again, and after that the outcome is known.
        """
        return settled(_written_store(self._catalogs, table, tasks), record_id, tasks)

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        """Load the metadata afresh, and delete the given files that no snapshot lists. Returns the deleted ones.

        The files are outputs of merges, manifests and manifest lists. The lists are deleted last, because they tell which snapshot the
        attempt was built on. If another table has the name by now, nothing is deleted: the files' own table may live on under another name.
        """
        return delete_orphans(table, load_all(self._catalogs, table), table_uuid, paths)

    def leftovers(self, table: TableIdentifier, task_ids: Sequence[TaskId], record_ids: Sequence[RecordId] = ()) -> Sequence[str]:
        """The files in the data folder whose names hold one of these task ids, and the manifests, manifest lists and statistics files with
        one of these record ids."""
        return leftovers(table, load_all(self._catalogs, table), task_ids, record_ids)

    def may_land(self, table: TableIdentifier, record_ids: Sequence[RecordId]) -> Sequence[str]:
        """Those of these records that may still land: one of their attempts was built on the snapshot that is the head now."""
        return may_land(table, load_all(self._catalogs, table), record_ids)

    def check_writable(self, table: TableIdentifier) -> None:
        """Write one tiny file to each folder of merged files, and delete it. Raises AccessDenied if this is not allowed.

        Other failures are ignored here. The merge tries again, and says what is wrong with which file.
        """
        loaded = self._catalogs.load(table)
        check_writable(table, loaded)
        if rewrites_are_on(loaded.metadata.properties):
            check_writable(table, load_known_stores(self._catalogs, table).change)

    def look(self, table: TableIdentifier, paths: Sequence[str]) -> Look:
        """Ask the storage for each of these files, and read none. Raises StorageUnavailable if it does not answer."""
        return look(table, load_all(self._catalogs, table), paths)

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        """The FileIO properties that open the table's files, vended credentials included. Properties that open the catalog are left out."""
        loaded = self._catalogs.load(table)
        if is_keyed(loaded.metadata.properties):
            stores = load_known_stores(self._catalogs, table)
            return with_change_store(file_io_properties(stores.base.io), file_io_properties(stores.change.io))
        return file_io_properties(loaded.io)


class _Commit:
    """One call of `commit`: its attempts, and what they share."""

    def __init__(
        self,
        catalogs: Catalogs,
        table: TableIdentifier,
        record_id: RecordId,
        tasks: Sequence[CompactionTask],
        on_step: Callable[[CommitStep], None],
        sleep: Callable[[float], None],
        jitter: Callable[[], float],
    ) -> None:
        self._catalogs = catalogs
        self._table = table
        self._record_id = record_id
        self._tasks = tuple(tasks)
        self._on_step = on_step
        self._sleep = sleep
        self._jitter = jitter
        self._reader: HeadReader | None = None
        self._paths_in: PositionDeletePaths | None = None
        self._unanswered = False
        self._unusable: set[TaskId] = set()
        # The change store of a keyed table, as it was when the attempt began. None unless the commit is to the base store.
        self._change: Table | None = None
        # Both stores of a keyed table, as they were when the attempt began. None unless the commit is to the change store.
        self._rewritten: KeyedStores | None = None

    def run(self) -> CommitOutcome:
        try:
            return self._run()
        except CompactionError as error:
            if not self._unanswered:
                raise
            # This attempt was stopped, but an earlier attempt of this call may still land.
            return CommitOutcome(CommitState.UNKNOWN, reason=str(error), unanswered=True)

    def _run(self) -> CommitOutcome:
        attempt = 0
        started = time.monotonic()
        while True:
            attempt += 1
            loaded = self._load()
            ended = self._attempt(loaded, attempt)
            if ended is not None:
                unusable = frozenset(ended.conflicts.keys() & self._unusable)
                return replace(ended, attempts=attempt, unanswered=ended.unanswered or self._unanswered, unusable=unusable)
            policy = loaded.metadata.properties
            retries = _integer(policy, "commit.retry.num-retries", 4)
            elapsed_ms = (time.monotonic() - started) * 1000
            if attempt > retries or elapsed_ms >= _integer(policy, "commit.retry.total-timeout-ms", 1_800_000):
                raise RacesLost(
                    f"table {self._table}: another writer was faster, or held the catalog's lock, {attempt} times "
                    f"('commit.retry.num-retries' is {retries}): nothing was committed; the next commit tries again"
                )
            wait_ms = min(
                _integer(policy, "commit.retry.min-wait-ms", 100) * 2 ** (attempt - 1), _integer(policy, "commit.retry.max-wait-ms", 60_000)
            )
            # The wait is multiplied by a random factor from 0.5 to 1.5, so that two committers that met once do not meet again.
            self._sleep(wait_ms * (0.5 + self._jitter()) / 1000)

    def _load(self) -> Table:
        self._on_step("before-load")
        if rewrites_changes(self._tasks):
            self._rewritten = load_known_stores(self._catalogs, self._table)
            loaded = self._rewritten.change
        elif merges_changes(self._tasks):
            loaded, self._change = load_for_commit(self._catalogs, self._table)
        else:
            loaded = self._catalogs.load(self._table)
        self._on_step("after-load")
        is_plain = self._change is None and self._rewritten is None
        part = refusal_of_part(self._catalogs, self._table, loaded) if is_plain else None
        refusal = part or refusal_of_contents(loaded.metadata)
        if refusal is not None:
            raise TableRefused(f"table {self._table} is not compacted: {refusal}")
        if self._reader is None:
            self._reader = HeadReader(loaded.io)
            self._paths_in = PositionDeletePaths(loaded.io)
        return loaded

    def _attempt(self, loaded: Table, attempt: int) -> CommitOutcome | None:
        """Make one attempt. None if it lost the race."""
        assert self._reader is not None
        assert self._paths_in is not None
        landed = landed_by_record(loaded, self._record_id, self._tasks)
        if landed is not None:
            return landed
        metadata = loaded.metadata
        parent = metadata.snapshot_by_name(MAIN_BRANCH)
        with translated(f"the files of table {self._table}"):
            files = self._reader.live_files(metadata, parent)
        head = HeadFiles(files, head_layout(metadata))
        earlier = with_their_groups(self._tasks, {task.task_id for task in self._tasks if outputs_are_live(task, head)})
        outputs, decision = self._decide([task for task in self._tasks if task.task_id not in earlier], loaded, head, self._paths_in)
        conflicts = decision.conflicts
        self._on_step("after-validation")
        before = parent.snapshot_id if parent else None
        if not decision.survivors:
            state = CommitState.COMMITTED if earlier else CommitState.NOTHING
            reason = "every task was committed before" if earlier and not conflicts else "no task could be committed"
            nothing = CommitOutcome(state, earlier, conflicts, before, before if earlier else None, reason=reason)
            return nothing if earlier or self._change is None else self._shut_out(loaded, attempt, nothing)

        transaction = Transaction(loaded, name=self._record_id, attempt=attempt, entries=self._reader.entries, on_step=self._on_step)
        with translated(f"table {self._table}: writing manifests"):
            try:
                for change in snapshot_changes(decision, outputs, head, self._properties()):
                    transaction.stage(change)
                if self._change is not None:
                    moved = moved_sequences(decision.to_base)
                    attach_statistics(str(self._table), loaded, transaction, self._record_id, moved)
            except Exception:
                delete_quietly(loaded.io, transaction.written)
                raise
        committed = (*earlier, *(task.task_id for task in decision.survivors))
        done = CommitOutcome(
            CommitState.COMMITTED,
            committed,
            conflicts,
            before,
            transaction.staged[-1].snapshot.snapshot_id,
            commit_figures(self._files_of_readers(files), decision, outputs),
        )
        return self._swap(loaded, transaction, done)

    def _shut_out(self, loaded: Table, attempt: int, nothing: CommitOutcome) -> CommitOutcome | None:
        """Make sure that no earlier attempt of this record lands on the base store's head; `nothing` is the answer then.

        The conflicts of a keyed table may lie in the change store alone. Nobody else need ever move the base store's head then, and the
        record would stay unknown for ever. So an empty snapshot moves it, unless no attempt was built on the head.
        """
        with translated(f"the files of table {self._table}"):
            parents = parents_of_attempts(loaded, {self._record_id}).get(self._record_id, set())
        if nothing.snapshot_before not in parents:
            return nothing
        # Its files have a name of their own: with the record's, this very attempt would count as one that may land.
        name = f"shut-out-{uuid.uuid4().hex}"
        transaction = Transaction(loaded, name=name, attempt=attempt, on_step=self._on_step)
        with translated(f"table {self._table}: writing manifests"):
            stage_nothing(str(self._table), loaded, transaction, name)
        return self._swap(loaded, transaction, nothing)

    def _swap(self, loaded: Table, transaction: Transaction, done: CommitOutcome) -> CommitOutcome | None:
        with counted_sends() as sends:
            try:
                transaction.commit()
            except Exception as error:
                failure = error
            else:
                return done
        if is_metadata_not_written(loaded.catalog, failure):
            delete_quietly(loaded.io, transaction.written)
            raise StorageUnavailable(
                f"table {self._table}: the new metadata file cannot be written: {failure}; free space, or allow the program to write there"
            ) from failure
        answer = answer_of(loaded.catalog, failure, sends.statuses)
        if answer is Answer.UNKNOWN:
            return self._after_no_proof(loaded, transaction, done, no_proof_in_words(failure, sends.statuses))
        _logger.info("table=%s record=%s %s: %s", self._table, self._record_id, answer.value, failure)
        if answer is Answer.LOST_RACE:
            return self._after_refusal(loaded, transaction, done, None)
        refusal = CommitRefused(
            f"the catalog refused the commit of table {self._table} ({answer_in_words(failure, sends.statuses)}): nothing was committed; "
            "check the rights of the catalog's credentials and the catalog's log, then compact again"
        )
        refusal.__cause__ = failure
        return self._after_refusal(loaded, transaction, done, refusal)

    def _after_refusal(
        self, loaded: Table, transaction: Transaction, done: CommitOutcome, refusal: CommitRefused | None
    ) -> CommitOutcome | None:
        """The catalog refused. Look for the snapshot anyway: a server or proxy that sent the request twice may refuse the second one."""
        try:
            fresh = _written_store(self._catalogs, self._table, self._tasks)
            landed = has_landed(fresh, loaded, transaction)
        except CompactionError as error:
            if refusal is None:
                return self._unknown(done, f"the catalog refused the commit, and the table cannot be read: {error}")
            # The manifests stay. Upkeep finds them by the id of the record.
            raise refusal from refusal.__cause__
        if landed:
            return done
        self._drop(loaded, fresh, transaction)
        if refusal is not None:
            raise refusal
        return None

    def _after_no_proof(self, loaded: Table, transaction: Transaction, done: CommitOutcome, why: str) -> CommitOutcome | None:
        """No answer proves how the commit ended; `why` says it in words. Fresh metadata may prove that it landed. The manifests stay."""
        _logger.warning("table=%s record=%s the outcome of the commit is unknown: %s", self._table, self._record_id, why)
        self._unanswered = True
        try:
            fresh = _written_store(self._catalogs, self._table, self._tasks)
            landed = has_landed(fresh, loaded, transaction)
        except CompactionError:
            return self._unknown(done, why)
        if landed:
            return done
        if head_id(fresh.metadata) == done.snapshot_before:
            return self._unknown(done, why)
        # Main has moved on from the parent of the attempt. The attempt can land only after a rollback, and must then find its manifests.
        return None

    def _unknown(self, done: CommitOutcome, why: str) -> CommitOutcome:
        reason = f"the outcome of the commit is unknown: {why}; nothing is deleted; the table shows later whether the commit landed"
        return CommitOutcome(CommitState.UNKNOWN, snapshot_before=done.snapshot_before, reason=reason)

    def _drop(self, loaded: Table, fresh: Table, transaction: Transaction) -> None:
        """Delete the manifests of an attempt.

        The manifests stay if the name now belongs to another table: the commit may have landed in the original table, which was renamed.
        """
        if fresh.metadata.table_uuid == loaded.metadata.table_uuid:
            delete_quietly(loaded.io, transaction.written)

    def _properties(self) -> Mapping[str, str]:
        """What the summary of each snapshot says."""
        # Tasks come in the order of their plans. If two plans name one key, the value of the younger plan counts, at every attempt.
        asked = {key: value for task in self._tasks for key, value in task.snapshot_properties.items()}
        return {**asked, RECORD_ID_PROPERTY: self._record_id}

    def _files_of_readers(self, files: Sequence[LiveFile]) -> Sequence[LiveFile]:
        """The files that readers open, when these are the live files of what is committed to."""
        return files if self._rewritten is None else files_of_readers(self._rewritten, files)

    def _decide(
        self, tasks: Sequence[CompactionTask], loaded: Table, head: HeadFiles, paths_in: PathsIn
    ) -> tuple[dict[TaskId, tuple[TaskOutput, ...]], CommitDecision]:
        """The outputs of the tasks, and what of them this attempt puts in."""
        outputs, unfit = self._prepare(tasks, loaded, head)

        def outputs_of(task: CompactionTask) -> Sequence[LiveFile]:
            return [output.live for output in outputs[task.task_id]]

        if self._change is not None:
            keyed = keyed_head(str(self._table), loaded, self._change, tasks, head.data.by_path.values())
            return outputs, decide_to_base(tasks, unfit, head, keyed, outputs_of, paths_in)
        if self._rewritten is not None:
            return outputs, decide_rewrites(tasks, unfit, head, outputs_of)
        decision = decide([task for task in tasks if task.task_id in outputs], head, outputs_of, paths_in)
        return outputs, replace(decision, conflicts={**unfit, **decision.conflicts})

    def _prepare(
        self, tasks: Sequence[CompactionTask], loaded: Table, head: HeadFiles
    ) -> tuple[dict[TaskId, tuple[TaskOutput, ...]], dict[TaskId, str]]:
        """The outputs of each task as this head describes them, and the reasons of the tasks whose outputs do not fit the head."""
        prepared: dict[TaskId, tuple[TaskOutput, ...]] = {}
        unfit: dict[TaskId, str] = {}
        named = loaded if self._rewritten is None else self._rewritten.base
        entries = EntryCheck(loaded.metadata)
        for task in tasks:
            if task.table_uuid != str(named.metadata.table_uuid):
                unfit[task.task_id] = f"the table was dropped and created again since the plan (uuid {task.table_uuid} is gone)"
                continue
            try:
                check_constants(task, head)
                prepared[task.task_id] = tuple(prepared_output(task, output, loaded, head, entries) for output in outputs_of(task))
            except CommitConflict as error:
                unfit[task.task_id] = str(error)
                if isinstance(error, OutputUnusable):
                    self._unusable.add(task.task_id)
        return prepared, unfit


def _written_store(catalogs: Catalogs, table: TableIdentifier, tasks: Sequence[CompactionTask]) -> Table:
    """What these tasks are committed to: the table, or the change store of a keyed table."""
    return load_known_stores(catalogs, table).change if rewrites_changes(tasks) else catalogs.load(table)


def _integer(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, "")
    return int(text) if text.isdigit() else default
