"""What readiness needs of the outside: the facts of tables as raw metadata states them, and what manifests say of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import History


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One store of a table, as its newest metadata says. Nothing here depends on whether this program understands the table's schema.

    `specs` are the partition specs by their ids, and `spec_id` is that of the one by which new files are written. `handle` is what the
    port needs to read manifests; only the port that made it knows its type.
    """

    store: TableIdentifier
    table_uuid: str
    metadata_location: str
    history: History
    properties: Mapping[str, str]
    specs: Mapping[int, Sequence[SpecField]]
    spec_id: int
    handle: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as its catalog names it now. `uuid` is that of the table (of the base store of a keyed table), whatever its name is.

    `stores` has one store of a plain table, and two of a keyed table, the base store first. `namespace` are the properties of the table's
    namespaces: an inner one overrides an outer one. They are empty where the catalog has none or does not tell them.
    """

    table: TableIdentifier
    uuid: str
    stores: Sequence[StoreFacts]
    namespace: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionCommits:
    """What was committed to one partition of a table since the last reading, in all its stores together.

    `files` is by how many live files, data and delete files, the partition has more now than at the last reading, whoever added or removed
    them; it may be negative. `added_at` is the time of the newest snapshot of main that added files to it and is no REPLACE, and `added_by`
    its id; None when there was no such snapshot since.
    """

    spec_id: int
    partition: Partition
    files: int
    added_at: datetime | None = None
    added_by: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """What a reading of manifests found. `heads` are the heads of main of the stores, up to which they were read.

    With `anew`, nothing of an earlier reading counts: the counts of `commits` are those of all live files, and a partition that is not in
    them has none. This is so when there was no earlier reading, and when main does not descend from what was read. Then `added_at` of files
    that older snapshots than metadata has have added is the time of the oldest snapshot of main that is still there: they are at least that
    old.
    """

    heads: tuple[int | None, ...]
    anew: bool
    commits: Sequence[PartitionCommits]


class FactsReader(Protocol):
    """Reads raw metadata and manifests of every table that a catalog names, also of those that this program does not compact."""

    def read(self, table: TableIdentifier) -> TableFacts:
        """Load the newest metadata of each store. No schema is parsed, and no manifest is read.

        Raises NotFoundError, ConfigError and StorageUnavailable.
        """

    def partition_commits(self, facts: TableFacts, since: Sequence[int | None] | None) -> PartitionReading:
        """Read the manifests that are newer than a reading with these heads; None for the first reading.

        Partitions of several specs are told apart. Raises TableRefused, in words, for tables whose manifests cannot be read, such as
        encrypted ones, and StorageUnavailable.
        """
