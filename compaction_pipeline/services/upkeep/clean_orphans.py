"""Deletes orphan files: what two looks at least 24 hours apart found unchanged, the second of them right before the deletion.

These are the steps, in order. The process may be killed after any of them, and the next run goes on:

1. take the table's upkeep lease, so that nobody expires the table or cleans it meanwhile,
2. ask why nothing may be deleted,
3. look and store the look, when the newest one is a day old,
4. when the newest look is of an earlier run, and an older one confirms something of it: look afresh,
5. before each batch of files: renew the lease, ask again why nothing may be deleted, ask what newer metadata and other tables name by now,
   and store which files go,
6. delete them, and store what came of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.errors import CompactionError, StorageUnavailable
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import upkeep_lease
from compaction_pipeline.core.leases.ports import HeldLeases, Renew
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.orphan_looks import DELETIONS_KEPT, LOOKS_KEPT, MOST_STORED, Cleaned, OrphanDeletion, OrphanLook
from compaction_pipeline.core.upkeep.orphan_rules import ACCEPTED_SHARE, ListedFile
from compaction_pipeline.core.upkeep.orphans import BETWEEN_LISTINGS, OrphanDecision, OrphanList, confirmed_by_any
from compaction_pipeline.core.upkeep.paths import loose_name
from compaction_pipeline.core.upkeep.ports.files import FilesLook
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores
from compaction_pipeline.core.upkeep.work_done import WorkDone
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS, UpkeepWork
from compaction_pipeline.services.upkeep.find_orphans import FindOrphans, Found
from compaction_pipeline.services.upkeep.why_not_change import WhyNotChange

_LOG = logging.getLogger(__name__)

_BATCH = 1_000
_TIME_IS_OVER = "the time for this run is over; the next one goes on"


class CleanOrphans:
    """The verbs look, clean, delete and deletions. `turn` is clean as a round sees it."""

    def __init__(
        self,
        find_orphans: FindOrphans,
        stores: SnapshotStores,
        memory: OrphanStore,
        why_not: WhyNotChange,
        leases: HeldLeases,
        new_id: Callable[[], str],
    ) -> None:
        self._find_orphans = find_orphans
        self._stores = stores
        self._memory = memory
        self._why_not = why_not
        self._leases = leases
        self._new_id = new_id

    def look(self, table: TableIdentifier, accept_share: float = ACCEPTED_SHARE) -> OrphanDecision:
        """Say what each file of a table is, and store the look: a second one, a day later, confirms it. Nothing is deleted.

        Raises StorageUnavailable while another process works on the files of the table, and what `FindOrphans.find` raises.
        """
        with self._holding(table):
            return self._look(table, accept_share, lambda: False)[1].decision

    def clean(self, table: TableIdentifier, is_over: Callable[[], bool] = lambda: False) -> Cleaned:
        """Look once a day, and delete what is confirmed. It costs one question to the state database when this day's work is done.

        Raises as `delete`.
        """
        newest = self._memory.newest_look(table)
        if newest is not None and newest[1] and timedelta(0) <= self._leases.clock() - newest[0] < BETWEEN_LISTINGS:
            return Cleaned(table)
        return self.delete(table, is_over)

    def delete(self, table: TableIdentifier, is_over: Callable[[], bool] = lambda: False, accept_share: float = ACCEPTED_SHARE) -> Cleaned:
        """Delete what two looks confirm, now. When the newest look is a day old, this run takes the second. Otherwise it takes a third.

        `accept_share` is the share of the listed bytes that may look unreferenced. `is_over` is asked before each batch. Raises
        StorageUnavailable while another process works on the files of the table, and what the ports raise; the stored deletions then say
        what is gone.
        """
        with self._holding(table) as renew:
            refusals = self._refusals(table)
            if refusals:
                return Cleaned(table, refusals=refusals)
            newest, before, fresh = self._newest(table, accept_share, is_over)
            cleaned = Cleaned(table) if fresh is None else Cleaned(table, fresh.decision, fresh.decision.refusals)
            files = confirmed_by_any((one.found for one in before if one.stores == newest.stores), newest.found)
            if files:
                now = self._leases.clock()
                # Hours may have passed since a look of an earlier run.
                fresh = fresh or self._find_orphans.find(table, now, accept_share=accept_share, is_over=is_over, before_deletion=True)
                is_same = _stores_of(fresh.look) == newest.stores
                cleaned = self._delete(table, fresh, files if is_same else frozenset(), lambda: self._why_stop(table, is_over, renew))
            self._memory.save_look(replace(newest, is_done=cleaned.problem != _TIME_IS_OVER))
            return cleaned

    def turn(self, table: TableIdentifier, is_over: Callable[[], bool]) -> WorkDone:
        """Clean, and return sentences about it. Raises as `clean`."""
        cleaned = self.clean(table, is_over)
        lines = tuple(f"{table}: {deletion.summary}" for deletion in cleaned.deletions)
        refusals = (*cleaned.refusals, *([cleaned.problem] if cleaned.problem is not None else []))
        said = tuple(f"{table}: {WORK_IN_WORDS[UpkeepWork.ORPHAN_FILES]}: {refusal}" for refusal in refusals)
        next_look = self._leases.clock() + BETWEEN_LISTINGS
        return WorkDone(table, UpkeepWork.ORPHAN_FILES, lines, said, next_look, cleaned.stored_bytes)

    def deletions(self, table: TableIdentifier | None, limit: int) -> Sequence[OrphanDeletion]:
        """Return the deletions, or those of a table, newest first, at most `limit`."""
        return self._memory.deletions(table, limit)

    def _newest(
        self, table: TableIdentifier, accept_share: float, is_over: Callable[[], bool]
    ) -> tuple[OrphanLook, Sequence[OrphanLook], Found | None]:
        """The newest look, those before it, and what it found, if it is of this run."""
        now = self._leases.clock()
        # A look at a time that has not come yet was taken by a wrong clock.
        looks = [one for one in self._memory.looks(table) if now - LOOKS_KEPT <= one.found.listed_at <= now]
        # One that found nothing may have been refused, and the reason may be gone.
        if looks and looks[0].found.files and now - looks[0].found.listed_at < BETWEEN_LISTINGS:
            return looks[0], looks[1:], None
        # This look may confirm files, and then they are deleted by it.
        look, found = self._look(table, accept_share, is_over, before_deletion=any(one.found.files for one in looks))
        return look, looks, found

    def _look(
        self, table: TableIdentifier, accept_share: float, is_over: Callable[[], bool], *, before_deletion: bool = False
    ) -> tuple[OrphanLook, Found]:
        now, looks = self._leases.clock(), self._stores.look(table)
        self._memory.expire(now - LOOKS_KEPT, now - DELETIONS_KEPT)
        set_back = self._why_not.set_back(looks)
        for one in looks:
            self._why_not.note(one)
        found = self._find_orphans.find(table, now, accept_share=accept_share, is_over=is_over, before_deletion=before_deletion)
        decision = found.decision
        decision = decision if set_back is None else replace(decision, refusals=(*decision.refusals, set_back))
        oldest = sorted(decision.orphans.files, key=lambda file: (file.modified_at, file.path))[:MOST_STORED]
        look = OrphanLook(table, _stores_of(found.look), OrphanList(now, tuple(oldest)))
        self._memory.save_look(look)
        return look, replace(found, decision=decision)

    def _delete(self, table: TableIdentifier, found: Found, files: Collection[ListedFile], why_stop: Callable[[], str | None]) -> Cleaned:
        """Delete those of these files that this look found to be orphans, and unchanged."""
        decision = found.decision
        if decision.refusals or decision.excess is not None:
            return Cleaned(table, decision, (*decision.refusals, *([decision.excess] if decision.excess is not None else [])))
        rest, named = [file for file in decision.orphans.files if file in files], set[str]()
        deletions: list[OrphanDeletion] = []
        problem = None
        while rest and problem is None:
            batch, rest = rest[:_BATCH], rest[_BATCH:]
            try:
                problem = why_stop()
                named |= {loose_name(path) for path in found.look.newer()} if problem is None else set()
                named |= {loose_name(path) for path in self._find_orphans.live_elsewhere(table, [file.path for file in batch])}
                batch = [file for file in batch if loose_name(file.path) not in named]
                if batch and problem is None:
                    deletions.append(self._delete_batch(table, found.look, batch))
            except CompactionError as error:
                problem = str(error)
        return Cleaned(table, decision, (), tuple(deletions), problem)

    def _delete_batch(self, table: TableIdentifier, look: FilesLook, batch: Sequence[ListedFile]) -> OrphanDeletion:
        deletion = OrphanDeletion(RecordId(self._new_id()), table, self._leases.clock(), tuple(batch))
        self._memory.save_deletion(deletion)
        failed = look.delete([file.path for file in batch])
        deletion = replace(deletion, failed=failed, ended_at=self._leases.clock())
        self._memory.save_deletion(deletion)
        _LOG.info("table=%s deletion=%s %s", table, deletion.record_id, deletion.summary)
        return deletion

    def _why_stop(self, table: TableIdentifier, is_over: Callable[[], bool], renew: Renew) -> str | None:
        if is_over():
            return _TIME_IS_OVER
        if not renew():
            return "another process works on the files of the table now"
        return "; ".join(self._refusals(table)) or None

    def _refusals(self, table: TableIdentifier) -> tuple[str, ...]:
        """Why nothing of the table may be deleted, whatever its files are."""
        refusal = self._why_not.of_table(table) or self._why_not.by_policy(table, UpkeepWork.ORPHAN_FILES)
        if refusal is not None:
            return (refusal,)
        looks = self._stores.look(table)
        return tuple(why for look in looks for why in (self._why_not.of_store(table, look, looks), look.keeps_files) if why is not None)

    @contextmanager
    def _holding(self, table: TableIdentifier) -> Iterator[Renew]:
        lease = upkeep_lease(table)
        with self._leases.hold(lease) as renew:
            if renew is None:
                held = held_in_words(self._leases.holder(lease), f"looking after the files of {table}")
                raise StorageUnavailable(f"{held}; try again later")
            yield renew


def _stores_of(look: FilesLook) -> tuple[tuple[str, str], ...]:
    return tuple((store.state.uuid or "", store.location) for store in look.stores)
