"""Registers consumers: readers that read a table from snapshot to snapshot, so that what they have not read yet does not expire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from compaction_pipeline.core.errors import ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.leases.holders import held_in_words
from compaction_pipeline.core.leases.names import commit_lease
from compaction_pipeline.core.leases.ports import HeldLeases
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import MOST_OF_TABLE, Consumer, checked_end
from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores, UpkeepStore


class KeepConsumers:
    """The verbs set, remove and consumers."""

    def __init__(self, stores: SnapshotStores, memory: UpkeepStore, leases: HeldLeases) -> None:
        self._stores = stores
        self._memory = memory
        self._leases = leases

    def set(self, table: TableIdentifier, name: str, snapshot_id: int, days: float) -> Consumer:
        """Register that a consumer has read this snapshot, and wants what comes after it for so many days. It replaces what was registered.

        Raises NotFoundError for a table or a snapshot that is not there, ConfigError for a value that breaks its rule, and
        StorageUnavailable while somebody commits to the table. What was registered before holds then.
        """
        until = checked_end(name, days, self._leases.clock())
        # An expiry removes snapshots under the same lease. Without it, one that began before could still remove this snapshot.
        with self._no_expiry(table):
            others = [one for one in self._memory.consumers() if one.table == table and one.name != name]
            if len(others) >= MOST_OF_TABLE:
                raise ConfigError(f"{table} has {len(others)} consumers, the most that a table may have; remove one that has ended")
            found = [look for look in self._stores.look(table) if snapshot_id in look.history.snapshots]
            if len(found) != 1:
                where = "no store of it has that" if not found else "both stores of it have that"
                raise NotFoundError(f"consumer {name} cannot have read snapshot {snapshot_id} of {table}: {where}; name one that is there")
            consumer = Consumer(table, name, found[0].store, found[0].table_uuid, snapshot_id, self._leases.clock(), until)
            self._memory.set_consumer(consumer)
            self._look_again(consumer)
        return consumer

    def remove(self, table: TableIdentifier, name: str) -> None:
        """End a registration. Raises NotFoundError when there is none, and StorageUnavailable as `set`."""
        with self._no_expiry(table):
            found = next((one for one in self._memory.consumers() if one.table == table and one.name == name), None)
            if found is None:
                raise NotFoundError(f"{table} has no consumer {name!r}; `compaction-pipeline consumer list` shows all")
            self._memory.remove_consumer(table, name)
            self._look_again(found)

    def consumers(self, table: TableIdentifier | None = None) -> Sequence[Consumer]:
        """Return the registrations, or those of a table, by table and name. No catalog is asked."""
        return [one for one in self._memory.consumers() if table is None or one.table == table]

    @contextmanager
    def _no_expiry(self, table: TableIdentifier) -> Iterator[None]:
        with self._leases.hold(commit_lease(table)) as renew:
            if renew is None:
                held = held_in_words(self._leases.holder(commit_lease(table)), f"committing {table}")
                raise StorageUnavailable(f"{held}; try again in some seconds, and until then what was registered before holds")
            yield

    def _look_again(self, consumer: Consumer) -> None:
        """Let the next round look at the store although it did not change: snapshots may go that the consumer needed before."""
        before = self._memory.sightings(consumer.store)
        if before is not None:
            self._memory.note(consumer.store, replace(before, next_look=self._leases.clock()))
