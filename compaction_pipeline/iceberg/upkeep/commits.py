"""Does the works of upkeep that make one snapshot of one store: the UpkeepCommitter port.

Each work is a strategy. The attempts, their three outcomes and what may be deleted are those of every other commit of this program
(`iceberg/CONTRACT.md`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from pyiceberg.table import Table

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import Figures, UpkeepOutcome, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
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
    snapshots_with,
)
from compaction_pipeline.iceberg.commit.endings import proof_of, raise_not_committed, unknown_in_words
from compaction_pipeline.iceberg.commit.landing import has_landed, parents_of_attempts
from compaction_pipeline.iceberg.deletions import forbid_deletion, share_ban
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.keyed.stores import load_known_stores
from compaction_pipeline.iceberg.rewrite_files import CommitStep, Transaction
from compaction_pipeline.iceberg.stores import Stores, open_stores, stores_of
from compaction_pipeline.iceberg.upkeep.merged_changes import ExpireMergedChanges
from compaction_pipeline.iceberg.upkeep.old_rows import DropOldRows
from compaction_pipeline.iceberg.upkeep.rewrite_manifests import RewriteManifests


class Plan(Protocol):
    """What a strategy has decided."""

    @property
    def said(self) -> UpkeepPlan:
        """The same in words and figures."""


P = TypeVar("P")


class UpkeepStrategy(Protocol[P]):
    """One kind of work, in one store. An attempt calls its methods in this order."""

    def refusal(self, loaded: Table) -> str | None:
        """Why nothing may be done to this table; None when something may."""
        ...

    def plan(self, loaded: Table, reader: HeadReader) -> P:
        """Decide what is due at the head of the table. Nothing is written. Raises TableRefused and ConfigError."""
        ...

    def stage(self, loaded: Table, plan: P, transaction: Transaction) -> tuple[Figures, str]:
        """Write the manifests of the snapshot. Returns what was done, in figures and in words.

        The summary of the snapshot has the name of the transaction, which is the id of the record, as RECORD_ID_PROPERTY.
        """
        ...


_STRATEGIES: Mapping[UpkeepWork, Callable[[Catalogs, UpkeepTarget, Mapping[str, str], Callable[[], datetime]], UpkeepStrategy[Any]]] = {
    UpkeepWork.MANIFESTS: lambda catalogs, target, catalog, clock: RewriteManifests(catalogs, target, catalog),
    UpkeepWork.CHANGE_FILES: ExpireMergedChanges,
    UpkeepWork.OLD_ROWS: DropOldRows,
}
_STORES: Mapping[UpkeepWork, slice] = {
    UpkeepWork.MANIFESTS: slice(1),
    UpkeepWork.CHANGE_FILES: slice(1, None),
    UpkeepWork.OLD_ROWS: slice(1),
}
"""Which stores of a table a work is done in. A keyed table has its base store first, then its change store."""


class IcebergUpkeepCommitter:
    """The UpkeepCommitter on PyIceberg. The age of files counts up to the time of `clock`.

    `sleep` and `jitter` (0 to 1) are arguments, so that tests need no time.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        clock: Callable[[], datetime],
        *,
        on_step: Callable[[CommitStep], None] = lambda step: None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._catalogs = catalogs
        self._clock = clock
        self._on_step = on_step
        self._sleep = sleep
        self._jitter = jitter

    def targets(self, table: TableIdentifier, work: UpkeepWork) -> Sequence[UpkeepTarget]:
        """The stores in which a work is done."""
        stores = open_stores(self._catalogs, table)
        both = list(zip(stores.names(table), stores.tables, strict=True))
        return [UpkeepTarget(table, name, str(store.metadata.table_uuid), work) for name, store in both[_STORES[work]]]

    def look(self, target: UpkeepTarget, catalog: Mapping[str, str]) -> UpkeepPlan:
        """What a work would do now."""
        return self._work(target, RecordId(""), catalog).look()

    def commit(self, target: UpkeepTarget, record_id: RecordId, catalog: Mapping[str, str]) -> UpkeepOutcome:
        """Do a work. Each attempt decides anew what is due."""
        return self._work(target, record_id, catalog).run(self._sleep, self._jitter)

    def settle(self, target: UpkeepTarget, record_id: RecordId) -> UpkeepOutcome:
        """Find out from the table how an earlier commit ended. Nothing is written."""
        loaded = self._catalogs.load(target.store)
        if str(loaded.metadata.table_uuid) != target.table_uuid:
            return UpkeepOutcome(CommitState.UNKNOWN, f"another table has the name {target.store} now, and cannot tell")
        done = _landed_earlier(loaded, record_id)
        if done is not None:
            return done
        with translated(f"the history of table {target.store}"):
            parents = parents_of_attempts(loaded, {record_id}).get(record_id, set())
        head = head_id(loaded.metadata)
        if head in parents:
            reason = f"an attempt was built on snapshot {head}, which is still the head, so it may land"
            return UpkeepOutcome(CommitState.UNKNOWN, reason, snapshot_before=head)
        reason = "no snapshot carries the id of the record, and no attempt of it was built on the present head"
        return UpkeepOutcome(CommitState.NOTHING, reason)

    def _work(self, target: UpkeepTarget, record_id: RecordId, catalog: Mapping[str, str]) -> _Work:
        strategy = _STRATEGIES[target.work](self._catalogs, target, catalog, self._clock)
        return _Work(self._catalogs, target, record_id, strategy, self._on_step)


class _Work:
    """One call, as the loop of attempts sees it."""

    def __init__(
        self,
        catalogs: Catalogs,
        target: UpkeepTarget,
        record_id: RecordId,
        strategy: UpkeepStrategy[Any],
        on_step: Callable[[CommitStep], None],
    ) -> None:
        self._catalogs = catalogs
        self._target = target
        self._record_id = record_id
        self._strategy = strategy
        self._on_step = on_step
        self._unanswered = False

    def look(self) -> UpkeepPlan:
        """What is due at the head of the table now."""
        loaded = self._opened()
        return self._planned(loaded, HeadReader(loaded.io)).said

    def run(self, sleep: Callable[[float], None], jitter: Callable[[], float]) -> UpkeepOutcome:
        """Make attempts until one has ended the work. Raises as the port says."""
        try:
            ended = make_commit(self, sleep, jitter)
            if isinstance(ended, (LostRace, Refused)):
                raise_not_committed(str(self._target.store), ended, "run the command again")
        except CompactionError as error:
            if not self._unanswered:
                raise
            # This attempt was stopped, but an earlier one of this call may still land.
            return UpkeepOutcome(CommitState.UNKNOWN, str(error), unanswered=True)
        return self._outcome(ended)

    def _outcome(self, ended: Committed[UpkeepOutcome] | Unknown[UpkeepOutcome]) -> UpkeepOutcome:
        if isinstance(ended, Unknown):
            done = UpkeepOutcome(CommitState.UNKNOWN, unknown_in_words(ended), snapshot_before=ended.expected.snapshot_before)
        else:
            done = ended.done
        return replace(done, attempts=ended.attempts, unanswered=self._unanswered)

    # ---- what the loop of attempts asks ------------------------------------------------------------------------------

    def stage(self, attempt: int) -> Swap[UpkeepOutcome] | UpkeepOutcome:
        """Load the table, look for an earlier landing, decide what is due, and write the manifests."""
        loaded = self._opened()
        done = _landed_earlier(loaded, self._record_id)
        if done is not None:
            return done
        reader = HeadReader(loaded.io)
        plan = self._planned(loaded, reader)
        self._on_step("after-validation")
        said, before = plan.said, head_id(loaded.metadata)
        if not said.is_due:
            return UpkeepOutcome(CommitState.NOTHING, said.reason, said.figures, before, next_look=said.next_look)
        transaction = Transaction(
            loaded, name=self._record_id, attempt=attempt, reader=reader, on_step=self._on_step, watermarks_by=self._watermarks_by(loaded)
        )
        with translated(f"table {self._target.store}: writing manifests"):
            figures, words = self._strategy.stage(loaded, plan, transaction)
        done = UpkeepOutcome(CommitState.COMMITTED, words, figures, before, transaction.staged[-1].snapshot.snapshot_id)
        return Swap(transaction, done, RetryPolicy.of_table(loaded.metadata.properties))

    def proof(self, swap: Swap[UpkeepOutcome], failure: Failure) -> Answer:
        """What the catalog's answer proves. Raises StorageUnavailable when the catalog was never asked."""
        answer = proof_of(str(self._target.store), self._record_id, swap, failure)
        self._unanswered = self._unanswered or answer is Answer.UNKNOWN
        return answer

    def reloaded(self, swap: Swap[UpkeepOutcome]) -> Table:
        fresh = self._catalogs.load(self._target.store)
        try:
            self._stores(fresh)
        except CompactionError as error:
            # This store alone tells whether the commit has landed. What the other one forbids is unknown, so nothing is deleted.
            forbid_deletion(fresh, f"the other store of {self._target.table} cannot be read: {error}")
        return fresh

    def landed(self, swap: Swap[UpkeepOutcome], fresh: Table) -> UpkeepOutcome | None:
        return swap.done if has_landed(fresh, swap.transaction) else None

    # ---- the parts of an attempt -------------------------------------------------------------------------------------

    def _opened(self) -> Table:
        self._on_step("before-load")
        loaded = self._catalogs.load(self._target.store)
        self._on_step("after-load")
        if str(loaded.metadata.table_uuid) != self._target.table_uuid:
            raise TableRefused(f"another table has the name {self._target.store} now")
        refusal = self._strategy.refusal(loaded)
        if refusal is not None:
            raise TableRefused(refusal)
        return loaded

    def _watermarks_by(self, loaded: Table) -> Mapping[str, str]:
        """The properties by which readers look for watermarks: of a keyed table those of its base store, by which the table is known."""
        return self._stores(loaded).tables[0].metadata.properties

    def _stores(self, loaded: Table) -> Stores:
        """The stores of the table. The one that was loaded is told what the other one of a keyed table forbids."""
        table, catalogs = self._target.table, self._catalogs
        is_known_by = self._target.store == table
        stores = stores_of(catalogs, table, loaded) if is_known_by else load_known_stores(catalogs, table, loaded)
        share_ban(loaded, *stores.tables)
        return stores

    def _planned(self, loaded: Table, reader: HeadReader) -> Plan:
        with translated(f"the manifests of table {self._target.store}"):
            planned: Plan = self._strategy.plan(loaded, reader)
        return planned


def _landed_earlier(loaded: Table, record_id: RecordId) -> UpkeepOutcome | None:
    """How an earlier commit with this id ended, when a snapshot carries the id."""
    found = next(iter(snapshots_with(loaded.metadata, RECORD_ID_PROPERTY, record_id)), None)
    if found is None:
        return None
    reason = f"it landed as snapshot {found.snapshot_id}, as the table shows"
    return UpkeepOutcome(CommitState.COMMITTED, reason, {}, found.parent_snapshot_id, found.snapshot_id)
