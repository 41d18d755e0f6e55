"""Tells why upkeep may not change a table, and which of its snapshots this program, keyed writers and consumers still need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.catalogs.formats import why_format_left_out
from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.keyed.transactions import transaction_timeout
from compaction_pipeline.core.tables.kinds import is_change_store
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import held_by_consumers
from compaction_pipeline.core.upkeep.keepers import Stay, open_transactions
from compaction_pipeline.core.upkeep.ports.snapshots import StoreLook, UpkeepStore
from compaction_pipeline.core.upkeep.refusals import why_nothing_expires
from compaction_pipeline.core.upkeep.retention import Retention, resolve_retention
from compaction_pipeline.core.upkeep.sightings import Sighting, Sightings, seen
from compaction_pipeline.core.upkeep.works import UpkeepWork, why_forbidden
from compaction_pipeline.core.work.merged import by_kind
from compaction_pipeline.services.table_filters import why_left_out

_NAMED_ITSELF = "it is the change store of a keyed table, and its base store says what readers need of both: name the base store instead"


class WhyNotChange:
    """The verb of_table says why a table may not be changed, by_policy which policy of its catalog forbids a work, of_store why nothing of
    a store may expire, and set_back whether its metadata is older than what was seen. The verb held tells which snapshots somebody needs.

    They read the retention and what was seen before, and tell these too: retention and seen_before. The verb note remembers what is seen.
    """

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        work: tuple[TaskStore, RecordStore],
        memory: UpkeepStore,
        clock: Clock,
        ask_policies: Callable[[TableIdentifier, str], TablePolicies | None] = lambda table, uuid: None,
    ) -> None:
        """`ask_policies` is `AskPolicies.ask`."""
        self._catalogs = catalogs
        self._tables = tables
        self._tasks, self._records = work
        self._ask_policies = ask_policies
        self._memory = memory
        self._clock = clock

    def of_table(self, table: TableIdentifier) -> str | None:
        """Say why upkeep may not change a table now, whatever its metadata says; None when it may."""
        entry = self._catalogs.entry(table.catalog)
        if entry.observe:
            return f"catalog {table.catalog} is only observed: `catalog change {table.catalog} --no-observe` lets its tables be changed"
        left_out = why_left_out(table, entry.properties)
        if left_out is not None:
            return left_out
        try:
            known = self._tables.state(table)
        except NotFoundError:
            known = None
        if known is not None and known.refusal is not None:
            return known.refusal
        wrong_format = why_format_left_out(table, known.layout if known is not None else None, entry.properties)
        if wrong_format is not None:
            return wrong_format
        if known is not None and known.paused:
            return f"a person paused it; `compaction-pipeline resume {table}` ends this"
        unsettled = self._records.records(table, limit=1, unsettled=True)
        if unsettled:
            return f"commit {unsettled[0].record_id} may still land; the next tick, or `compaction-pipeline compact {table}`, finds out"
        return None

    def by_policy(self, table: TableIdentifier, work: UpkeepWork) -> str | None:
        """Say which policy of the catalog forbids a work in a table; None when none does. An answer of the last ten minutes counts."""
        try:
            loaded = self._tables.state(table).index.loaded
        except NotFoundError:
            loaded = None
        uuid = loaded.table_uuid if loaded is not None else ""
        return why_forbidden(work, self._ask_policies(table, uuid))

    def of_store(self, table: TableIdentifier, look: StoreLook, looks: Sequence[StoreLook]) -> str | None:
        """Say why nothing of a store may expire or be deleted, as metadata says; None when something may. `looks` are all stores of the
        table: when one was set back, it may need what the others have left behind.

        Raises ConfigError for a property that breaks its rule.
        """
        named_itself = _NAMED_ITSELF if is_change_store(looks[0].properties) else None
        return look.refusal or named_itself or why_nothing_expires(self.retention(table, look), look.location) or self.set_back(looks)

    def set_back(self, looks: Sequence[StoreLook]) -> str | None:
        """Say which of these stores has older metadata than was seen of it; None when none has."""
        for look in looks:
            reason = self.seen_before(look).set_back(look.last_sequence_number, look.last_updated_ms)
            if reason is not None:
                return reason if len(looks) == 1 else f"of store {look.store}, {reason}"
        return None

    def note(self, look: StoreLook, next_look: datetime | None = None, *, is_decided: bool = False) -> None:
        """Remember what is seen of a store, unless it was set back. `is_decided` says that it was decided what expires, and `next_look`
        when time alone may change that."""
        before = self.seen_before(look)
        if before.set_back(look.last_sequence_number, look.last_updated_ms) is not None:
            return
        sighting = Sighting(self._clock(), look.last_sequence_number, look.last_updated_ms)
        decided = (look.metadata_location, next_look) if is_decided else (before.metadata_location, before.next_look)
        self._memory.note(look.store, seen(before, sighting, *decided))

    def held(self, table: TableIdentifier, look: StoreLook, looks: Sequence[StoreLook]) -> Iterator[tuple[int, Stay]]:
        """The snapshots of a store that somebody outside it needs, each with the reason. `looks` are all stores of the table."""
        open_tasks = [task for task in self._tasks.tasks(table) if not task.is_final]
        for task in open_tasks:
            yield task.snapshot_id, Stay(f"task {task.task_id} was planned from it")
        for merge in by_kind(open_tasks).to_base:
            yield merge.work.changes.change_snapshot_id, Stay(f"task {merge.task_id} was planned from it")
        yield from open_transactions(look.history.snapshots.values(), transaction_timeout(looks[0].properties))
        yield from held_by_consumers(self._memory.consumers(), look.table_uuid)

    def retention(self, table: TableIdentifier, look: StoreLook, looks: Sequence[StoreLook] = ()) -> Retention:
        """What the properties of a store ask for. Raises ConfigError for one that breaks its rule.

        With all stores of a keyed table, snapshots of the change store stay for `change.data.ttl.minutes` of the base store, as in Amoro:
        change files stay as long as the snapshots that added them. Readers look for watermarks in both stores by the properties of the base
        store, so under these keys, too, what says one stays.
        """
        catalog = self._catalogs.entry(table.catalog).properties
        retention = resolve_retention(look.properties, catalog, table)
        if not looks or look is looks[0]:
            return retention
        of_base = resolve_retention(looks[0].properties, catalog, table)
        keys = tuple(dict.fromkeys((*of_base.watermark_keys, *retention.watermark_keys)))
        return replace(retention, amoro_age=max(retention.amoro_age, of_base.change_ttl), watermark_keys=keys)

    def seen_before(self, look: StoreLook) -> Sightings:
        """What was seen of a store until now. A look at a time that has not come yet was taken by a wrong clock, and does not count."""
        before = self._memory.sightings(look.store)
        if before is None or before.table_uuid != look.table_uuid:
            return Sightings(look.table_uuid)
        return before.until(self._clock())
