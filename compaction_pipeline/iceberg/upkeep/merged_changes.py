"""Takes merged change files out of the change store of a keyed table, in one `delete` snapshot of its main.

The files leave storage when the older snapshots of the change store expire. The same swap says in a property of the change store up to
which number changes have left it, so that readers refuse a base store that lacks them (`refuse_set_back`). `iceberg/upkeep/commits.py`
makes the attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.keyed.optimized_sequence import EXPIRED_KEY, numbers_moved, numbers_of_expired, payload_of
from compaction_pipeline.core.tables.keyed.transactions import open_transactions, transaction_timeout
from compaction_pipeline.core.upkeep.commit_record import Figures, UpkeepTarget
from compaction_pipeline.core.upkeep.merged_changes import ChangeHistory, MergedChanges, decide_merged_changes
from compaction_pipeline.core.upkeep.refusals import why_nothing_expires
from compaction_pipeline.core.upkeep.retention import resolve_retention
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.kept_manifests import kept_manifests
from compaction_pipeline.iceberg.keyed.sequences import fields_of_spec, read_all_sequences, read_expired
from compaction_pipeline.iceberg.keyed.stores import load_known_stores
from compaction_pipeline.iceberg.keyed.transactions import begun_transactions
from compaction_pipeline.iceberg.rewrite_files import SnapshotChange, Transaction
from compaction_pipeline.iceberg.scan import refusal_of_contents

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class ExpireMergedChanges:
    """The strategy of the work CHANGE_FILES, in a change store. `catalog` are the properties of its catalog."""

    def __init__(self, catalogs: Catalogs, target: UpkeepTarget, catalog: Mapping[str, str], clock: Callable[[], datetime]) -> None:
        self._catalogs = catalogs
        self._target = target
        self._catalog = catalog
        self._clock = clock

    def refusal(self, loaded: Table) -> str | None:
        """Why no file of this store expires; None when some may. Raises ConfigError for a property that breaks its rule."""
        retention = resolve_retention(loaded.properties, self._catalog, self._target.table)
        return refusal_of_contents(loaded.metadata) or why_nothing_expires(retention, loaded.metadata.location)

    def plan(self, loaded: Table, reader: HeadReader) -> MergedChanges:
        """Decide which files go from this change store.

        The base store is loaded after it, so it is at least as new, and the swap proves that the change store did not move since. Raises
        TableRefused when nothing of the base store may expire, and when it is unsure which changes are in it, as a plan of a compaction
        does.
        """
        stores, now = load_known_stores(self._catalogs, self._target.table, loaded), self._clock()
        base, change = stores.base, loaded.metadata
        refusal = "it names another change store now" if stores.change is not loaded else self.refusal(base)
        if refusal is not None:
            raise TableRefused(f"of the base store {self._target.table}, {refusal}")
        files = read_keyed_files(stores, kept_manifests)
        began = open_transactions(begun_transactions(change), (), now, transaction_timeout(base.properties))
        history = ChangeHistory(
            readers=((one.snapshot_id, _time(one), numbers) for one, numbers in read_all_sequences(stores.name, base.metadata, base.io))
            # A reader of main needs every change then, whatever snapshots of other branches say.
            if base.metadata.snapshot_by_name(MAIN_BRANCH) is not None
            else (),
            committed_at={one.snapshot_id: _time(one) for one in change.snapshots},
            first_open=began[0].transaction_id if began else None,
            expired=read_expired(change, base.metadata),
        )
        return decide_merged_changes(files, history, resolve_retention(base.properties, self._catalog, self._target.table).change_ttl, now)

    def stage(self, loaded: Table, plan: MergedChanges, transaction: Transaction) -> tuple[Figures, str]:
        """Write the manifests without the files that go."""
        # A reader of changes looks at snapshots that append only, so it takes no file of this one for new.
        transaction.stage(SnapshotChange(Operation.DELETE, removed=plan.files, properties={RECORD_ID_PROPERTY: transaction.name}))
        numbers = numbers_moved(numbers_of_expired(loaded.properties), plan.numbers, fields_of_spec(loaded.metadata))
        transaction.set_properties({EXPIRED_KEY: payload_of(numbers).decode()})
        return plan.said.figures, plan.reason


def _time(snapshot: Snapshot) -> datetime:
    return _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)
