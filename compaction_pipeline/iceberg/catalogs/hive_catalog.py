"""Commits to tables of a Hive metastore with a swap that loses no commit of others.

PyIceberg takes a lock, and neither keeps it alive nor tells the metastore which metadata the commit was built on. So a commit that lasts
longer than `hive.txn.timeout`, for example while a large metadata file is written, overwrites what others committed meanwhile. Here the
lock gets heartbeats and is looked at before the swap, the swap names the metadata that it replaces, and a swap without a clear answer is
compared with the table. `core/commit/hive.py` says when no lock is taken, and what an answer proves.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from compaction_pipeline.core.commit.hive import Guard, guard_of
from compaction_pipeline.iceberg.catalogs.hive_lock import HiveLock
from compaction_pipeline.iceberg.catalogs.hive_metastore import HiveMetastore
from compaction_pipeline.iceberg.catalogs.hive_swap import HiveSwap
from compaction_pipeline.iceberg.catalogs.swap_errors import SwapRefused


class BoundedHiveCatalog(HiveMetastore):
    """A Hive catalog that follows the rules of this module.

    `commit_table` raises CommitFailedException (another writer was first), SwapRefused, SwapNotAsked, and OSError when the metadata file
    cannot be written: nothing was committed then. It raises CommitStateUnknownException when nobody knows; its metadata file stays.
    """

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if isinstance(table, StagedTable):
            # The table is made by this commit, and the metastore refuses a second one of its name.
            return super().commit_table(table, requirements, updates)
        guard = guard_of(self.properties, table.metadata.properties)
        if isinstance(guard, str):
            raise SwapRefused(f"table {'.'.join(table.name())} is not committed to: {guard}")
        name = self.identifier_to_database_and_table(table.name(), NoSuchTableError)
        with self._locked(name, guard) as lock:
            return HiveSwap(self, self._limits, name, table, guard, lock).made(requirements, updates)

    def _locked(self, name: tuple[str, str], guard: Guard) -> AbstractContextManager[HiveLock | None]:
        if not guard.takes_lock:
            return nullcontext()
        return HiveLock(self._connect, *name, checked=guard.checked).held(self._limits.commit_seconds)
