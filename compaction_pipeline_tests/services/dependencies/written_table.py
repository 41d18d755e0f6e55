"""A table that tests write snapshot by snapshot, with the facts that a reader of its metadata and manifests would find."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.ports import PartitionCommits, PartitionReading, Seen, StoreFacts, TableFacts
from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.errors import NotFoundError, TableRefused
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot

TABLE = TableIdentifier("lake", ("shop",), "events")
DAYS = {0: (SpecField("ts_day", "day", 1, "timestamptz"), SpecField("id_bucket", "bucket[4]", 2, "long"))}


@dataclass
class WrittenTable:
    """The table, and the FactsReader that knows only it. Each commit adds or removes files of days."""

    now: datetime
    table: TableIdentifier = TABLE
    uuid: str = "uuid-1"
    properties: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, str] = field(default_factory=dict)
    specs: Mapping[int, Sequence[SpecField]] = field(default_factory=lambda: DAYS)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    changes: dict[int, Mapping[str, int]] = field(default_factory=dict)
    head: int | None = None
    unreadable: bool = False
    is_gone: bool = False
    loads: list[TableIdentifier] = field(default_factory=list)
    readings: list[object] = field(default_factory=list)

    def clock(self) -> datetime:
        return self.now

    def commit(self, summary: Mapping[str, str] | None = None, operation: str = "append", **days: int) -> int:
        """Commit files of days, named like `d2026_01_01`. Return the id of the snapshot."""
        number = len(self.snapshots) + 1
        changes = {day[1:].replace("_", "-"): count for day, count in days.items()}
        self.snapshots[number] = Snapshot(number, self.head, self.now, {**(summary or {}), "operation": operation}, number)
        self.changes[number] = changes
        self.head = number
        return number

    def mark(self, text: str, **days: int) -> int:
        """Commit with a watermark, given in ISO 8601."""
        milliseconds = round(datetime.fromisoformat(text).timestamp() * 1000)
        return self.commit({"watermark": str(milliseconds)}, **days)

    def pass_time(self, **of: float) -> None:
        self.now += timedelta(**of)

    def expire(self, *ids: int) -> None:
        for each in ids:
            del self.snapshots[each]

    def read(self, table: TableIdentifier) -> TableFacts:
        self.loads.append(table)
        if self.is_gone:
            raise NotFoundError("there is no such table")
        return self._facts(table)

    def _facts(self, table: TableIdentifier) -> TableFacts:
        assert table == self.table
        refs = {MAIN: Ref(MAIN, self.head, True)} if self.head is not None else {}
        history = History(dict(self.snapshots), refs)
        # Whatever is changed of a table makes another metadata file.
        place = repr((self.uuid, self.head, sorted(self.snapshots), sorted(self.properties.items()), sorted(self.specs)))
        store = StoreFacts(table, self.uuid, place, history, dict(self.properties), self.specs, max(self.specs))
        return TableFacts(table, self.uuid, (store,), dict(self.namespace))

    def unmoved(self, seen: Collection[Seen]) -> frozenset[TableIdentifier]:
        return frozenset(one.table for one in seen if not self.is_gone and one == self._facts(one.table).seen)

    def partition_commits(self, facts: TableFacts, since: Sequence[int | None] | None) -> PartitionReading:
        if self.unreadable:
            raise TableRefused(f"the manifests of {facts.table} are encrypted")
        assert self.head is not None
        walked = list(facts.stores[0].history.ancestry(self.head))
        known = [one.snapshot_id for one in walked]
        goes_on = since is not None and since[0] in known
        read = walked[: known.index(since[0])] if goes_on and since is not None and since[0] is not None else walked
        self.readings.append((since, [one.snapshot_id for one in read]))
        found: dict[str, PartitionCommits] = {}
        for one in reversed(read):
            for day, count in self.changes[one.snapshot_id].items():
                values = (PartitionValue("ts_day", "date", day), PartitionValue("id_bucket", "int", 1))
                before = found.get(day, PartitionCommits(0, values, 0))
                after = replace(before, files=before.files + count)
                if count > 0 and one.summary["operation"] != "replace":
                    after = replace(after, added_at=one.made_at, added_by=one.snapshot_id)
                found[day] = after
        return PartitionReading((self.head,), not goes_on, tuple(found.values()))


@dataclass
class ManyTables:
    """The FactsReader of several tables, by their names."""

    by_name: Mapping[str, WrittenTable]
    clock: Callable[[], datetime]

    def read(self, table: TableIdentifier) -> TableFacts:
        return self.by_name[table.name].read(table)

    def unmoved(self, seen: Collection[Seen]) -> frozenset[TableIdentifier]:
        return frozenset[TableIdentifier]().union(*(self.by_name[one.table.name].unmoved([one]) for one in seen))

    def partition_commits(self, facts: TableFacts, since: Sequence[int | None] | None) -> PartitionReading:
        return self.by_name[facts.table.name].partition_commits(facts, since)
