"""What upkeep needs of the outside: the stores of a table as they are now, and the memory of what was done to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.core.upkeep.history import History
from compaction_pipeline.core.upkeep.record import DeletedFiles, RemovedSnapshot, UpkeepRecord
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.core.upkeep.turns import Turn
from compaction_pipeline.core.upkeep.works import UpkeepWork


@dataclass(frozen=True, slots=True)
class StoreLook:
    """One store of a table, as its newest metadata says.

    `leads` has for each snapshot what leads to its files, and `statistics` the paths of its statistics files. `refusal` says why nothing
    may be removed from it, and `keeps_files` why its files may not be deleted, though snapshots may leave its metadata; None when they may.
    `handle` is the loaded table; only the port that made it knows its type.
    """

    store: TableIdentifier
    table_uuid: str
    location: str
    metadata_location: str
    last_sequence_number: int
    last_updated_ms: int
    history: History
    properties: Mapping[str, str]
    leads: Mapping[int, RemovedSnapshot]
    statistics: Mapping[int, tuple[str, ...]]
    refusal: str | None
    keeps_files: str | None
    handle: Any


class RemovalState(str, Enum):
    """What a catalog made of the request to remove snapshots."""

    LANDED = "LANDED"
    NOTHING = "NOTHING"
    """Certainly nothing was removed."""
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Removal:
    """The answer to a removal. `keeps_files` says why the files of the removed snapshots must stay for ever; None when they may go.

    `base_known` says that the answer told on which metadata the removal was made.
    """

    state: RemovalState
    reason: str | None = None
    keeps_files: str | None = None
    base_known: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """What one deletion did. `problem` says why it is not finished, and begins anew the next time; None when it is."""

    deleted: DeletedFiles
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Doomed:
    """What a deletion is about: the files that only the removed snapshots of `record` reach.

    `look` is the store of the record, and `beside` are the other stores of its table: a file that any of them needs stays. So do the files
    of the snapshots `kept`, which left the metadata too, and those that `of_others` returns of some paths: other tables have them. Before
    each batch of deletions `may_go_on()` is asked.
    """

    look: StoreLook
    record: UpkeepRecord
    beside: Sequence[StoreLook]
    kept: Sequence[RemovedSnapshot]
    of_others: Callable[[Sequence[str]], Collection[str]]
    may_go_on: Callable[[], bool]


class SnapshotStores(Protocol):
    """Removes snapshots from the stores of tables, and deletes the files that no snapshot needs any more.

    Every method may raise NotFoundError, ConfigError, TableRefused or StorageUnavailable; nothing was removed or deleted then.
    """

    def look(self, table: TableIdentifier) -> Sequence[StoreLook]:
        """Load the newest metadata of each store of a table: one of a plain table, two of a keyed table, the base store first."""

    def remove(self, look: StoreLook, snapshot_ids: Sequence[int], refs: Collection[str]) -> Removal:
        """Take these snapshots and refs out of the metadata, by one request. The caller holds the table's commit lease."""

    def dropped_beside(self, look: StoreLook, record: UpkeepRecord) -> str | None:
        """Say why the files of a record must stay for ever: a ref that nobody knew of was dropped with its snapshots, or nobody can tell.

        `look` is newer than the removal. Raises StorageUnavailable when it cannot be found out now.
        """

    def delete_unreachable(self, doomed: Doomed) -> Deletion:
        """Delete the files of removed snapshots that nothing reaches. `Doomed` says which may go.

        Content files go first, then statistics, manifests and lists of manifests, so that the next run finds what is left.
        """


class UpkeepStore(Protocol):
    """The stored records of upkeep, what was seen of each store, the turns of each work, and the registered consumers."""

    def save(self, record: UpkeepRecord) -> None:
        """Insert or replace a record."""

    def records(self, table: TableIdentifier | None = None, limit: int | None = None, under_way: bool = False) -> Sequence[UpkeepRecord]:
        """Return the records, or those of a table, newest first, at most `limit`. With `under_way` only those that have not ended."""

    def save_commit(self, record: UpkeepCommit) -> None:
        """Insert or replace the record of a work that commits."""

    def commits(self, table: TableIdentifier | None = None, limit: int | None = None, under_way: bool = False) -> Sequence[UpkeepCommit]:
        """Return the records of works that commit, as `records` does."""

    def forget_commit(self, record_id: RecordId) -> None:
        """Remove the record of a work that found nothing to do."""

    def expire(self, before: datetime) -> int:
        """Remove the records and the registrations of consumers that ended before this time. Return how many were removed."""

    def turns(self, work: UpkeepWork) -> Mapping[TableIdentifier, Turn]:
        """Return the last turn that each table had for a work."""

    def note_turn(self, table: TableIdentifier, work: UpkeepWork, turn: Turn) -> None:
        """Store the turn that a table had just now for a work."""

    def sightings(self, store: TableIdentifier) -> Sightings | None:
        """Return what was seen of a store; None when it was never looked at."""

    def all_sightings(self) -> Mapping[TableIdentifier, Sightings]:
        """Return what was seen of every store that was ever looked at."""

    def note(self, store: TableIdentifier, sightings: Sightings | None) -> None:
        """Store what was seen of a store; None forgets it."""

    def consumers(self) -> Sequence[Consumer]:
        """Return the registrations of all tables, by table and name; also those that have ended and are not removed yet."""

    def set_consumer(self, consumer: Consumer) -> None:
        """Insert a registration, or replace that of the same table and name."""

    def remove_consumer(self, table: TableIdentifier, name: str) -> None:
        """Remove a registration, if it is there."""
