"""Commits what a writer of a keyed table has written to one of its stores: all of it once, or nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.errors import CommitStateUnknown, RacesLost, StorageUnavailable
from compaction_pipeline.iceberg.catalogs.commit_answers import answer_of
from compaction_pipeline.iceberg.commit.attempts import Failure, LostRace, Refused, RetryPolicy, Swap, Unknown, make_commit, snapshots_with
from compaction_pipeline.iceberg.rewrite_files import Transaction

_WRITE_ID = "compaction.write-id"
"""The key in a snapshot's summary by which a writer finds out whether its commit has landed."""

Stage = Callable[[Mapping[str, str], int], "Transaction | None"]
"""Stages the snapshot of one attempt. It gets what the snapshot's summary must have, and the number of the attempt, from 0."""


def commit_write(store: Table, what: str, stage: Stage, sleep: Callable[[float], None] = time.sleep) -> Snapshot | None:
    """Commit the snapshot that `stage` makes. Returns it; None when `stage` makes none.

    `stage` builds on the newest metadata, and raises when the files do not fit it any more. `what` names the store in messages. A lost race
    is tried again. Raises RacesLost when the last try has lost, and CommitStateUnknown when nothing proves whether the write was committed.
    Only after CommitStateUnknown may its files be live.
    """
    ended = make_commit(_Write(store, stage, uuid4().hex), sleep, random.random)
    if isinstance(ended, LostRace):
        raise RacesLost(f"{what}: other writers were faster {ended.attempts} times; nothing was written, write it again")
    if isinstance(ended, (Refused, Unknown)):
        error = ended.failure.error
        seen = "the table does not show it yet" if isinstance(ended, Refused) or ended.unread is None else "the table cannot be read now"
        raise CommitStateUnknown(
            f"{what}: the catalog's answer to a commit got lost ({type(error).__name__}: {error}), and {seen}; it may still land. "
            "Write the batch again with the same sink_id and number: it lands once"
        ) from error
    return ended.done


@dataclass(frozen=True)
class _Write:
    """A commit of a writer, as the loop of attempts sees it."""

    store: Table
    stage_snapshot: Stage
    write_id: str

    def stage(self, attempt: int) -> Swap[Snapshot | None] | Snapshot | None:
        transaction = self.stage_snapshot({_WRITE_ID: self.write_id}, attempt - 1)
        if transaction is None:
            return None
        return Swap(transaction, transaction.staged[-1].snapshot, RetryPolicy.WRITER)

    def proof(self, swap: Swap[Snapshot | None], failure: Failure) -> Answer:
        # No answer counts as a refusal. The caller keeps its files then, and the batch lands once, whatever became of this commit.
        is_lost = isinstance(failure.error, CommitFailedException)
        return answer_of(self.store.catalog, failure.error, failure.statuses) if is_lost else Answer.UNKNOWN

    def reloaded(self, swap: Swap[Snapshot | None]) -> Table:
        try:
            self.store.refresh()
        except Exception as error:
            raise StorageUnavailable(f"the store cannot be read: {error}") from error
        return self.store

    def landed(self, swap: Swap[Snapshot | None], fresh: Table) -> Snapshot | None:
        # It may be that of an earlier attempt, which was called lost and landed late.
        return next(iter(snapshots_with(fresh.metadata, _WRITE_ID, self.write_id)), None)
