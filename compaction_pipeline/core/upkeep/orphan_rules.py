"""What the decision about orphan files must know: files as the storage lists them, and whose folders they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.upkeep.file_names import is_of_flink
from compaction_pipeline.core.upkeep.history import History
from compaction_pipeline.core.upkeep.keepers import writers_of
from compaction_pipeline.core.upkeep.paths import ToldStores
from compaction_pipeline.core.upkeep.retention import Retention

LEAST_AGE = timedelta(days=1)
WRITER_AGE = timedelta(days=7)
"""Files of a streaming writer may be named by a checkpoint of it, and by nothing else, for as long as the job may stand still."""
ACCEPTED_SHARE = 0.2
"""Of the listed bytes, at most this share may be garbage. More looks like a mistake in what is compared."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as the storage lists it. `modified_at` is by the storage's clock; `version` its ETag, None where the storage has none."""

    path: str
    size_bytes: int
    modified_at: datetime
    version: str | None = None


class Standing(str, Enum):
    """What a listed file is. Exactly one holds; of several that fit, the first one is said."""

    REFERENCED = "REFERENCED"
    """Metadata reaches it."""
    OURS = "OURS"
    """Its name has the id of a task or a record of this program that may still need it."""
    YOUNG = "YOUNG"
    """A writer may be about to commit it."""
    STRANGE = "STRANGE"
    """No writer of this table seems to have made it."""
    MISMATCH = "MISMATCH"
    """It may be a referenced file under another text, or in another store."""
    ORPHAN = "ORPHAN"
    """Nothing reaches it."""


@dataclass(frozen=True, slots=True)
class MetadataState:
    """What one metadata file says of itself: whose it is, and how far it has come. `uuid` is None when it names none."""

    uuid: str | None
    last_sequence_number: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class OwnStore:
    """One Iceberg table whose files are listed: a plain table, or a store of a keyed one. `state` is that of the loaded metadata."""

    location: str
    state: MetadataState
    gc_enabled: bool = True
    partition_fields: frozenset[str] = frozenset()
    metadata_location: str = ""
    real_location: str | None = None
    """The location without links, where it is a folder of this host that is reached by one."""


@dataclass(frozen=True, slots=True)
class OtherTable:
    """Another table that is or was known, in any catalog and of any format.

    `roots` are folders outside its location in which it names files. `joined` says that what it names is among the referenced paths,
    `unread` that nobody ever read where it names files, and that nobody can any more.
    """

    name: str
    location: str
    roots: tuple[str, ...] = ()
    joined: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True)
class OrphanRules:
    """What the decision must know besides the files.

    `stores` are the table's own, `ids` those of tasks and records whose files stay. `metadata` has every listed metadata file that was
    read, by its path. `roots` are folders that are listed besides the locations, because somebody asked for it. `shared` are listed paths
    at which another table has a live file.
    """

    stores: tuple[OwnStore, ...]
    roots: tuple[str, ...] = ()
    others: tuple[OtherTable, ...] = ()
    shared: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    metadata: Mapping[str, MetadataState] = field(default_factory=dict)
    minimum_age: timedelta = Retention().orphan_age
    accept_share: float = ACCEPTED_SHARE
    told: ToldStores = ToldStores()

    @property
    def listed_folders(self) -> tuple[str, ...]:
        """The folders of which the listing tells."""
        real = (store.real_location for store in self.stores if store.real_location is not None)
        return (*(store.location for store in self.stores), *real, *self.roots)

    @property
    def age(self) -> timedelta:
        """The age below which a file is too young, whatever was asked for."""
        return max(self.minimum_age, LEAST_AGE)


def minimum_age(history: History, retention: Retention, files: Iterable[ListedFile] = ()) -> timedelta:
    """The age below which a file is too young. It is longer where a streaming writer has left its mark in a snapshot, or a manifest of
    Flink among the listed files."""
    writes = any(True for snapshot in history.snapshots.values() for _ in writers_of(snapshot, retention.writer_keys))
    writes = writes or any(is_of_flink(file.path) for file in files)
    return max(retention.orphan_age, LEAST_AGE, *((WRITER_AGE, retention.writer_retention) if writes else ()))
