"""Does works of upkeep that commit to a table, each under the table's commit lease, and keeps a record of each.

These are the steps, in order. The process may be killed after any of them, and the next run goes on:

1. take the table's commit lease: each commit writes manifests on the head, and one of two would only lose its race,
2. write a record for each store,
3. do the work, by one request to the catalog,
4. note its outcome in the record, or forget the record when nothing was due,
5. find out from the table what became of earlier records that have not ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from compaction_pipeline.core.commit.late_requests import LATE_REQUEST
from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import CompactionError, ConfigError, StorageUnavailable, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit, UpkeepOutcome, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.ports.commits import UpkeepCommitter
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.work_done import WorkDone
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS, UpkeepWork
from compaction_pipeline.services.upkeep.why_not_commit import WhyNotCommit

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreDone:
    """What was found or done in one store: the plan of a dry run, the outcome of a run, or why nothing may be done.

    `record` is None when nothing was due. `is_bad_input` says that it is refused for a property that breaks its rule.
    """

    store: TableIdentifier
    plan: UpkeepPlan | None = None
    outcome: UpkeepOutcome | None = None
    refusal: str | None = None
    record: UpkeepCommit | None = None
    is_bad_input: bool = False


class CommitUpkeep:
    """Two verbs: carry_out, and look without writing. `turn` is carry_out as a round sees it."""

    def __init__(
        self,
        catalogs: CatalogStore,
        why_not: WhyNotCommit,
        leases: HeldLeases,
        committer: UpkeepCommitter,
        memory: UpkeepStore,
        new_id: Callable[[], str],
        late: timedelta = LATE_REQUEST,
    ) -> None:
        """`late` is how long a request without an answer may still arrive."""
        self._catalogs = catalogs
        self._why_not = why_not
        self._leases = leases
        self._committer = committer
        self._memory = memory
        self._new_id = new_id
        self._late = late

    def look(self, table: TableIdentifier, work: UpkeepWork) -> Sequence[StoreDone]:
        """Return what the work would do in each store now, or why it would be refused. Raises NotFoundError and StorageUnavailable."""
        return self._in_stores(table, work, lambda target: StoreDone(target.store, self._committer.look(target, self._properties(table))))

    def carry_out(self, table: TableIdentifier, work: UpkeepWork) -> Sequence[StoreDone]:
        """Do the work in each store in which it is due.

        Raises NotFoundError when the table or its catalog is unknown, and StorageUnavailable while another process commits the table, or
        when certainly nothing was committed to a store. The stores before that store have their records.
        """
        lease = commit_lease(table)
        with self._leases.hold(lease) as renew:
            if renew is None:
                raise StorageUnavailable(f"{held_in_words(self._leases.holder(lease), f'committing {table}')}; try again later")
            done = self._in_stores(table, work, self._done)
            self._settle(table)
            return done

    def turn(self, work: UpkeepWork, table: TableIdentifier, is_over: Callable[[], bool] = lambda: False) -> WorkDone:
        """Do the work, and return sentences about it. One commit is not stopped half-way. Raises as `carry_out`."""
        done = self.carry_out(table, work)
        records = [one.record for one in done if one.record is not None]
        lines = tuple(f"{one.target.store}: {one.summary}" for one in records if one.status is UpkeepStatus.DONE)
        unknown = [f"{one.target.store}: {one.summary}" for one in records if one.status is not UpkeepStatus.DONE]
        refusals = (*unknown, *(f"{one.store}: {WORK_IN_WORDS[work]}: {one.refusal}" for one in done if one.refusal is not None))
        looks = [one.outcome.next_look for one in done if one.outcome is not None and one.outcome.next_look is not None]
        return WorkDone(table, work, lines, refusals, min(looks, default=None))

    def records(self, table: TableIdentifier | None, limit: int) -> Sequence[UpkeepCommit]:
        """Return the records, or those of a table, newest first, at most `limit`."""
        return self._memory.commits(table, limit)

    def _in_stores(self, table: TableIdentifier, work: UpkeepWork, do: Callable[[UpkeepTarget], StoreDone]) -> Sequence[StoreDone]:
        done: list[StoreDone] = []
        try:
            refusal = self._why_not.of_work(table, work)
            if refusal is not None:
                return (StoreDone(table, refusal=refusal),)
            targets = self._committer.targets(table, work)
        except TableRefused as error:
            return (StoreDone(table, refusal=str(error)),)
        for target in targets:
            try:
                done.append(do(target))
            except (TableRefused, ConfigError) as error:
                # What was done in one store does not wait for the other.
                done.append(StoreDone(target.store, refusal=str(error), is_bad_input=isinstance(error, ConfigError)))
        return tuple(done) or (StoreDone(table, refusal="the table is not keyed, so it has no change store"),)

    def _done(self, target: UpkeepTarget) -> StoreDone:
        record = UpkeepCommit(RecordId(self._new_id()), target, UpkeepStatus.OPEN, self._leases.clock())
        self._memory.save_commit(record)
        try:
            outcome = self._committer.commit(target, record.record_id, self._properties(target.table))
        except CompactionError as error:
            self._end(record, UpkeepOutcome(CommitState.NOTHING, str(error)))
            raise
        if outcome.is_nothing and not outcome.unanswered:
            self._memory.forget_commit(record.record_id)
            return StoreDone(target.store, outcome=outcome)
        return StoreDone(target.store, outcome=outcome, record=self._end(record, outcome))

    def _end(self, record: UpkeepCommit, outcome: UpkeepOutcome) -> UpkeepCommit:
        record = record.ended(outcome, self._leases.clock())
        self._memory.save_commit(record)
        target = record.target
        _LOG.info("table=%s record=%s %s %s: %s", target.store, record.record_id, target.work.value, record.status.value, record.summary)
        return record

    def _settle(self, table: TableIdentifier) -> None:
        """Find out what became of the records that have not ended.

        Nothing waits for one that may still land: its request names the head on which it was built, so it or a later commit loses its race.
        The head has often moved by now, and tells then how the record ended.
        """
        now = self._leases.clock()
        for record in self._memory.commits(table, under_way=True):
            try:
                outcome = self._committer.settle(record.target, record.record_id)
            except CompactionError as error:
                outcome = UpkeepOutcome(CommitState.UNKNOWN, str(error))
            if outcome.is_unknown and now - record.created_at >= self._late:
                outcome = replace(outcome, state=CommitState.NOTHING, reason=f"nothing shows that it landed: {outcome.reason}")
            self._end(record, outcome)

    def _properties(self, table: TableIdentifier) -> Mapping[str, str]:
        return self._catalogs.entry(table.catalog).properties
