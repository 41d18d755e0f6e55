"""Takes merged change files out of the change store of a keyed table, in one `delete` snapshot of its main.

The files leave storage when the older snapshots of the change store expire. The same swap says in a property of the change store up to
which number changes have left it, so that readers refuse a base store that lacks them (`refuse_set_back`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.keyed.file_names import is_delete_file
from compaction_pipeline.core.tables.keyed.optimized_sequence import EXPIRED_KEY, numbers_moved, numbers_of_expired, payload_of
from compaction_pipeline.core.tables.keyed.transactions import open_transactions, transaction_timeout
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.merged_changes import ChangeHistory, MergedChanges, decide_merged_changes
from compaction_pipeline.core.upkeep.refusals import why_nothing_expires
from compaction_pipeline.core.upkeep.retention import resolve_retention
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.kept_manifests import kept_manifests
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec, read_all_sequences, read_expired
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_known_stores
from compaction_pipeline.iceberg.keyed.transactions import begun_transactions
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.iceberg.scan import refusal_of_contents

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class MergedChangesOfTable:
    """The strategy of one call. `catalog` are the properties of the table's catalog, and the age of files counts up to `now`."""

    def __init__(self, catalogs: Catalogs, table: TableIdentifier, record_id: RecordId, catalog: Mapping[str, str], now: datetime) -> None:
        self._catalogs = catalogs
        self._table = table
        self._record_id = record_id
        self._catalog = catalog
        self._now = now
        self._stores: KeyedStores | None = None

    def opened(self) -> Table:
        """Load both stores, the change store first, and return the change store.

        The base store is at least as new then, and the swap proves that the change store did not move since. Raises TableRefused when it is
        no keyed table or nothing of it may expire, and ConfigError for a property that breaks its rule.
        """
        self._stores = stores = load_known_stores(self._catalogs, self._table)
        for store in stores.tables:
            retention = resolve_retention(store.properties, self._catalog, self._table)
            refusal = refusal_of_contents(store.metadata) or why_nothing_expires(retention, store.metadata.location)
            if refusal is not None:
                raise TableRefused(f"no change file of table {self._table} expires: {refusal}")
        return stores.change

    def plan(self, loaded: Table, reader: HeadReader) -> MergedChanges:
        """Which files go now. Raises TableRefused when it is unsure which changes are in the base store, as a plan of a compaction does."""
        assert self._stores is not None, "`opened` comes first"
        base, change = self._stores.base, loaded.metadata
        files = read_keyed_files(self._stores, kept_manifests)
        began = open_transactions(begun_transactions(change), (), self._now, transaction_timeout(base.properties))
        history = ChangeHistory(
            readers=((one.snapshot_id, numbers) for one, numbers in read_all_sequences(self._stores.name, base.metadata, base.io)),
            committed_at={one.snapshot_id: _EPOCH + timedelta(milliseconds=one.timestamp_ms) for one in change.snapshots},
            first_open=began[0].transaction_id if began else None,
            expired=read_expired(change, base.metadata),
        )
        ttl = resolve_retention(base.properties, self._catalog, self._table).change_ttl
        return decide_merged_changes(files, history, self._now - ttl)

    def stage(self, loaded: Table, plan: MergedChanges, transaction: Transaction) -> Mapping[str, int]:
        """Write the manifests without the files that go. Returns the figures of the record."""
        # A reader of changes looks at snapshots that append only, so it takes no file of this one for new.
        transaction.stage(SnapshotChange(Operation.DELETE, removed=plan.files, properties={RECORD_ID_PROPERTY: self._record_id}))
        numbers = numbers_moved(numbers_of_expired(loaded.properties), plan.numbers, fields_of_spec(loaded.metadata))
        transaction.set_properties({EXPIRED_KEY: payload_of(numbers).decode()})
        return {
            "change_files": len(plan.files),
            "delete_files": sum(is_delete_file(file.path) for file in plan.files),
            "rows": sum(file.record_count for file in plan.files),
            "bytes": sum(file.file_size_bytes for file in plan.files),
            "kept": plan.kept,
        }
