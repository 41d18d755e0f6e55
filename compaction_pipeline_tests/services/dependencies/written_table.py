"""A table that tests write snapshot by snapshot, with the facts that a reader of its metadata and manifests would find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.ports import PartitionCommits, PartitionReading, StoreFacts, TableFacts
from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.errors import TableRefused
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
        assert table == self.table
        refs = {MAIN: Ref(MAIN, self.head, True)} if self.head is not None else {}
        history = History(dict(self.snapshots), refs)
        store = StoreFacts(table, self.uuid, f"m{len(self.snapshots)}", history, dict(self.properties), self.specs, max(self.specs))
        return TableFacts(table, self.uuid, (store,), dict(self.namespace))

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
