"""Commits Prepared tasks: the Committer port. CONTRACT.md in the folder above has every rule."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compaction_pipeline.core.commit.ports import CommitOutcome, Look
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.tables.properties import rewrites_are_on
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.merged import MergedWork, by_kind
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.base_store import BaseStoreCommit
from compaction_pipeline.iceberg.commit.change_store import ChangeStoreCommit
from compaction_pipeline.iceberg.commit.compaction import CompactionCommit
from compaction_pipeline.iceberg.commit.landing import settled
from compaction_pipeline.iceberg.commit.plain import PlainCommit
from compaction_pipeline.iceberg.commit.strategy import Strategy
from compaction_pipeline.iceberg.leftovers import check_writable, delete_orphans, leftovers, look, may_land
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline.iceberg.stores import open_stores, stores_of


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

    def commit(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> CommitOutcome:
        """Validate the tasks at each attempt, and commit those that may go in.

        Raises NotFoundError if the table is gone, and TableRefused if it is not compacted. Raises StorageUnavailable if certainly
        nothing was committed and the same may work later: every race was lost, or the storage is full or unreachable.
        """
        strategy = _strategy(self._catalogs, table, record_id, tasks)
        return CompactionCommit(str(table), strategy, record_id, tasks, self._on_step).run(self._sleep, self._jitter)

    def settle(self, table: TableIdentifier, record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> CommitOutcome:
        """Find out from the table how an earlier commit of this record ended. It writes nothing.

        The answer is UNKNOWN only while that commit may still land: an attempt left its manifest list, and main still is the snapshot on
        which the attempt was built. It is safe then to commit the same record again, and after that the outcome is known.
        """
        return settled(_strategy(self._catalogs, table, record_id, tasks), record_id, tasks)

    def delete_orphans(self, table: TableIdentifier, table_uuid: str, paths: Sequence[str]) -> Sequence[str]:
        """Load the metadata afresh, and delete the given files that no snapshot lists. Returns the deleted ones.

        The files are outputs of merges, manifests and manifest lists. The lists are deleted last, because they tell which snapshot the
        attempt was built on. If another table has the name by now, nothing is deleted: the files' own table may live on under another name.
        """
        return delete_orphans(table, open_stores(self._catalogs, table), table_uuid, paths)

    def leftovers(self, table: TableIdentifier, task_ids: Sequence[TaskId], record_ids: Sequence[RecordId] = ()) -> Sequence[str]:
        """The files in the data folder whose names hold one of these task ids, and the manifests, manifest lists and statistics files with
        one of these record ids."""
        return leftovers(table, open_stores(self._catalogs, table), task_ids, record_ids)

    def may_land(self, table: TableIdentifier, record_ids: Sequence[RecordId]) -> Sequence[str]:
        """Those of these records that may still land: one of their attempts was built on the snapshot that is the head now."""
        return may_land(table, open_stores(self._catalogs, table), record_ids)

    def check_writable(self, table: TableIdentifier) -> None:
        """Write one tiny file to each folder of merged files, and delete it. Raises AccessDenied if this is not allowed.

        Other failures are ignored here. The merge tries again, and says what is wrong with which file.
        """
        loaded = self._catalogs.load(table)
        check_writable(table, loaded)
        if rewrites_are_on(loaded.metadata.properties):
            for store in stores_of(self._catalogs, table, loaded).tables[1:]:
                check_writable(table, store)

    def look(self, table: TableIdentifier, paths: Sequence[str]) -> Look:
        """Ask the storage for each of these files, and read none. Raises StorageUnavailable if it does not answer."""
        return look(table, open_stores(self._catalogs, table), paths)

    def file_io(self, table: TableIdentifier) -> Mapping[str, str]:
        """The FileIO properties that open the table's files, vended credentials included. Properties that open the catalog are left out."""
        return open_stores(self._catalogs, table).file_io()


def _strategy(catalogs: Catalogs, table: TableIdentifier, record_id: RecordId, tasks: Sequence[MergedWork[Work]]) -> Strategy[Any]:
    """The strategy of a commit of these tasks. A commit never has tasks of several strategies.

    Each strategy understands its own decisions only, and nobody else looks into them. So their type does not matter here.
    """
    kinds = by_kind(tasks)
    if kinds.rewrites:
        return ChangeStoreCommit(catalogs, table, tuple(tasks))
    if kinds.to_base:
        return BaseStoreCommit(catalogs, table, record_id, tuple(tasks))
    return PlainCommit(catalogs, table, tuple(tasks))
