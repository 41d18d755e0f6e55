"""What readiness needs of the outside: the facts of tables, what manifests say of partitions, and a memory of what was found out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from compaction_pipeline.core.dependencies.answers import Answer
from compaction_pipeline.core.dependencies.judge import KnownPartition
from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.dependencies.watermark import Said
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

    @property
    def seen(self) -> Seen:
        return Seen(self.table, {each.store: each.metadata_location for each in self.stores}, self.namespace)


@dataclass(frozen=True, slots=True)
class Seen:
    """Where the newest metadata of each store of a table was when it was read, by name of the store, and what its namespaces said."""

    table: TableIdentifier
    stores: Mapping[TableIdentifier, str]
    namespace: Mapping[str, str]


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

    def unmoved(self, seen: Collection[Seen]) -> frozenset[TableIdentifier]:
        """Return those of these tables that are as they were seen, as far as their catalogs tell that of many tables at a time.

        No table is loaded. A table whose question fails is left out.
        """

    def partition_commits(self, facts: TableFacts, since: Sequence[int | None] | None) -> PartitionReading:
        """Read the manifests that are newer than a reading with these heads; None for the first reading.

        Partitions of several specs are told apart. Raises TableRefused, in words, for tables whose manifests cannot be read, such as
        encrypted ones, and StorageUnavailable.
        """


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was said at a head of main of one store, for the time when its snapshots have expired.

    `said` is what the watermark was read from, and `flags` maps keys of the rule `flag` to what was said of each path.
    """

    said: tuple[Said, ...] = ()
    flags: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadTo:
    """Up to which heads the manifests of a table were read.

    `whole` is False when only late files were looked for: then counts of live files are not known.
    """

    heads: tuple[int | None, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Somebody reported at this time that a partition is ready."""

    what: str
    at: datetime


class ToldAs(str, Enum):
    """What the receiver of callbacks was told: that something is ready, or that this was taken back. With READY_AGAIN it was told that it
    is ready, and is to be told so once more, under the same id."""

    READY = "ready"
    READY_AGAIN = "ready again"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class AwaitedAnswer:
    """An answer whose changes the receiver of callbacks is told until then. `told` is the id of the last time that it was told to be ready,
    which is also the id of its taking back, and `told_as` is the last of the two; both are None when it was told nothing yet."""

    table: TableIdentifier
    uuid: str
    what: str
    until: datetime
    told: str | None = None
    told_as: ToldAs | None = None


class DependencyStore(Protocol):
    """The facts about tables that no metadata holds for ever. All of them belong to a table by its uuid, whatever its name is."""

    def remembered(self, uuid: str, store: int) -> Mapping[int, Remembered]:
        """Return what is remembered of a store (0, or 1 for the change store of a keyed table), by the id of what was its head."""

    def remember(self, uuid: str, store: int, snapshot_id: int, before: Remembered | None, after: Remembered, now: datetime) -> bool:
        """Store what was said at a head. Only the newest 20 heads of a store are kept.

        Return False, and change nothing, when something else than `before` is remembered of this head; None stands for nothing.
        """

    def standings(self, uuid: str) -> Sequence[Standing]:
        """Return where the watermark of each writer of a table stood at the last question, by writer."""

    def note_standings(self, uuid: str, found: Sequence[Standing]) -> None:
        """Store where the watermark of each writer of a table stands. What is stored of other writers of the table is removed."""

    def read_to(self, uuid: str) -> ReadTo | None:
        """Return up to which heads the manifests of a table were read; None when they never were."""

    def partitions(self, uuid: str) -> Sequence[KnownPartition]:
        """Return what the readings found out about the partitions of a table."""

    def note_reading(self, uuid: str, before: ReadTo | None, after: ReadTo, reading: PartitionReading, now: datetime) -> bool:
        """Add a reading to what is known, or replace it when it was made anew. Partitions that have no files any more are kept.

        Return False, and change nothing, when another reading came between.
        """

    def answers(self, uuid: str, whats: Collection[str]) -> Mapping[str, Answer]:
        """Return the last answers to these questions about a table, by what was asked. Questions that nobody asked yet are missing."""

    def save_answers(self, table: TableIdentifier, uuid: str, answers: Sequence[Answer]) -> None:
        """Insert or replace answers. Who awaits them, and what was told, stays."""

    def await_answers(self, uuid: str, whats: Collection[str], until: datetime, *, anew: bool) -> None:
        """Note that the receiver of callbacks is told of each change of these answers until then; with `anew`, also once more that they are
        ready, when it was told so before."""

    def awaited(self, now: datetime) -> Sequence[AwaitedAnswer]:
        """Return the answers that are awaited now, by table."""

    def note_reported(self, table: TableIdentifier, now: datetime) -> None:
        """Note that something was reported of a table, if an answer about it is awaited now, or the dependency center knows it."""

    def take_reported(self, now: datetime) -> Sequence[AwaitedAnswer]:
        """Return the answers that are awaited now about tables of which something was reported since this was called last, by table."""

    def note_told(self, awaited: AwaitedAnswer, told: str, told_as: ToldAs) -> None:
        """Note what the receiver of callbacks was told last of an answer, unless it is awaited anew meanwhile."""

    def reports(self, uuid: str) -> Sequence[Report]:
        """Return the reports about a table, by what they name."""

    def report(self, uuid: str, report: Report) -> None:
        """Store a report. A later one of the same partition replaces it."""

    def withdraw(self, uuid: str, what: str) -> bool:
        """Remove a report. Return whether there was one."""

    def expire(self, before: datetime, reports_before: datetime) -> None:
        """Remove answers that nobody asked for since `before`, what was found out about tables that nobody read since, and old reports.

        Whoever asks again later has it found out anew.
        """
