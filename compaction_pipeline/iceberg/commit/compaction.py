"""A commit of merged tasks, as the loop of attempts sees it. What depends on the kind of table is its strategy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.head import HeadFiles
from compaction_pipeline.core.commit.ports import CommitOutcome, CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CommitConflict, CompactionError, OutputUnusable, TableRefused
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.commit.attempts import (
    Committed,
    Failure,
    LostRace,
    Refused,
    RetryPolicy,
    Swap,
    Unknown,
    head_id,
    make_commit,
)
from compaction_pipeline.iceberg.commit.endings import proof_of, raise_not_committed, unknown_in_words
from compaction_pipeline.iceberg.commit.landing import has_landed, landed_by_record
from compaction_pipeline.iceberg.commit.outputs import TaskOutput, check_constants, outputs_are_live, outputs_of, prepared_output
from compaction_pipeline.iceberg.commit.strategy import Chosen, D, Opened, Strategy
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import HeadReader, KnownManifests, head_layout
from compaction_pipeline.iceberg.manifests.entries import EntryCheck
from compaction_pipeline.iceberg.position_deletes import PositionDeletePaths
from compaction_pipeline.iceberg.rewrite_files import CommitStep, Transaction


class CompactionCommit(Generic[D]):
    """One call of `commit`. `name` is the table's, for messages. `on_step` is called at each `CommitStep` of each attempt."""

    def __init__(
        self,
        name: str,
        strategy: Strategy[D],
        record_id: RecordId,
        tasks: Sequence[MergedWork[Work]],
        on_step: Callable[[CommitStep], None],
    ) -> None:
        self._name = name
        self._strategy = strategy
        self._record_id = record_id
        self._tasks = tuple(tasks)
        self._on_step = on_step
        self._known = KnownManifests()
        self._known_deletes: dict[str, frozenset[str] | None] = {}
        self._unanswered = False
        self._unusable: set[TaskId] = set()

    def run(self, sleep: Callable[[float], None], jitter: Callable[[], float]) -> CommitOutcome:
        """Make attempts until one has ended the commit. Raises as `Committer.commit`."""
        try:
            return self._outcome(make_commit(self, sleep, jitter))
        except CompactionError as error:
            if not self._unanswered:
                raise
            # This attempt was stopped, but an earlier attempt of this call may still land.
            return CommitOutcome(CommitState.UNKNOWN, reason=str(error), unanswered=True)

    def _outcome(self, ended: Committed[CommitOutcome] | LostRace | Refused | Unknown[CommitOutcome]) -> CommitOutcome:
        """The end of the loop as an outcome. Raises when certainly nothing was committed."""
        if isinstance(ended, (LostRace, Refused)):
            raise_not_committed(self._name, ended, "compact again")
        if isinstance(ended, Unknown):
            before = ended.expected.snapshot_before
            done = CommitOutcome(CommitState.UNKNOWN, snapshot_before=before, reason=unknown_in_words(ended))
        else:
            done = ended.done
        unusable = frozenset(done.conflicts.keys() & self._unusable)
        return replace(done, attempts=ended.attempts, unanswered=done.unanswered or self._unanswered, unusable=unusable)

    # ---- what the loop of attempts asks ------------------------------------------------------------------------------

    def stage(self, attempt: int) -> Swap[CommitOutcome] | CommitOutcome:
        """Load the table, look for an earlier landing, validate the tasks, and write the manifests of those that go in."""
        opened = self._opened()
        landed = landed_by_record(opened.store, self._record_id, self._tasks, self._strategy)
        return landed if landed is not None else self._validated(opened, attempt)

    def proof(self, swap: Swap[CommitOutcome], failure: Failure) -> Answer:
        """What the catalog's answer proves. Raises StorageUnavailable when the catalog was never asked."""
        answer = proof_of(self._name, self._record_id, swap, failure)
        self._unanswered = self._unanswered or answer is Answer.UNKNOWN
        return answer

    def reloaded(self, swap: Swap[CommitOutcome]) -> Table:
        return self._strategy.reloaded()

    def landed(self, swap: Swap[CommitOutcome], fresh: Table) -> CommitOutcome | None:
        return swap.done if has_landed(fresh, swap.transaction) else None

    # ---- the parts of an attempt -------------------------------------------------------------------------------------

    def _opened(self) -> Opened[D]:
        self._on_step("before-load")
        opened = self._strategy.open()
        self._on_step("after-load")
        refusal = opened.refusal()
        if refusal is not None:
            raise TableRefused(f"table {self._name} is not compacted: {refusal}")
        return opened

    def _validated(self, opened: Opened[D], attempt: int) -> Swap[CommitOutcome] | CommitOutcome:
        """Decide which tasks go in, and stage these."""
        loaded, metadata = opened.store, opened.store.metadata
        reader = HeadReader(loaded.io, self._known)
        with translated(f"the files of table {self._name}"):
            files = reader.live_files(metadata, metadata.snapshot_by_name(MAIN_BRANCH))
        head = HeadFiles(files, head_layout(metadata))
        earlier = self._strategy.together({task.task_id for task in self._tasks if outputs_are_live(task, head)})
        outputs, candidates = self._candidates([task for task in self._tasks if task.task_id not in earlier], opened, head)
        decision = opened.decide(candidates, head, PositionDeletePaths(loaded.io, self._known_deletes))
        self._on_step("after-validation")

        def begun(name: str) -> Transaction:
            by = opened.watermarks_by
            return Transaction(loaded, name=name, attempt=attempt, reader=reader, on_step=self._on_step, watermarks_by=by)

        if decision.survivors:
            return self._staged(opened, Chosen(decision, head, files, outputs), earlier, begun(self._record_id))
        nothing = _nothing(earlier, decision.conflicts, head_id(metadata))
        shut_out = None if earlier else opened.shut_out(begun)
        return nothing if shut_out is None else _swap(shut_out, nothing)

    def _staged(self, opened: Opened[D], chosen: Chosen[D], earlier: Sequence[TaskId], transaction: Transaction) -> Swap[CommitOutcome]:
        with translated(f"table {self._name}: writing manifests"), transaction.dropped_on_failure():
            opened.stage(transaction, chosen, self._properties())
        decision, after = chosen.decision, transaction.staged[-1].snapshot.snapshot_id
        committed = (*earlier, *(task.task_id for task in decision.survivors))
        figures = opened.figures(chosen)
        done = CommitOutcome(CommitState.COMMITTED, committed, decision.conflicts, transaction.parent_id, after, figures)
        return _swap(transaction, done)

    def _candidates(
        self, tasks: Sequence[MergedWork[Work]], opened: Opened[D], head: HeadFiles
    ) -> tuple[Mapping[TaskId, Sequence[TaskOutput]], Candidates]:
        """The outputs of each task as this head describes them, and what is decided about."""
        outputs: dict[TaskId, tuple[TaskOutput, ...]] = {}
        unfit: dict[TaskId, str] = {}
        entries = EntryCheck(opened.store.metadata)
        for task in tasks:
            if task.table_uuid != opened.table_uuid:
                unfit[task.task_id] = f"the table was dropped and created again since the plan (uuid {task.table_uuid} is gone)"
                continue
            try:
                check_constants(task, head)
                outputs[task.task_id] = tuple(
                    prepared_output(task, output, opened.store, head, entries, opened.sequence_number(task, output))
                    for output in outputs_of(task)
                )
            except CommitConflict as error:
                unfit[task.task_id] = str(error)
                if isinstance(error, OutputUnusable):
                    self._unusable.add(task.task_id)
        live = {task_id: [output.live for output in of_task] for task_id, of_task in outputs.items()}
        return outputs, Candidates(tasks, live, unfit)

    def _properties(self) -> Mapping[str, str]:
        """What the summary of each snapshot says."""
        # Tasks come in the order of their plans. If two plans name one key, the value of the younger plan counts, at every attempt.
        asked = {key: value for task in self._tasks for key, value in task.snapshot_properties.items()}
        return {**asked, RECORD_ID_PROPERTY: self._record_id}


def _swap(transaction: Transaction, done: CommitOutcome) -> Swap[CommitOutcome]:
    return Swap(transaction, done, RetryPolicy.of_table(transaction.table.metadata.properties))


def _nothing(earlier: Sequence[TaskId], conflicts: Mapping[TaskId, str], before: int | None) -> CommitOutcome:
    """The outcome when no task goes in now. `earlier` are the tasks that went in under another record."""
    state = CommitState.COMMITTED if earlier else CommitState.NOTHING
    reason = "every task was committed before" if earlier and not conflicts else "no task could be committed"
    return CommitOutcome(state, tuple(earlier), conflicts, before, before if earlier else None, reason=reason)
