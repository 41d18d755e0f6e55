"""The demo's three plain tables: their columns, partitions and properties, and the changes that a writer makes up for them.

Rows are dictionaries by column name. A table with a `key` is upserted, so only the newest row of a key counts. A table without a key
only grows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType
from pyiceberg.utils.datetime import datetime_to_micros

NAMESPACE = "shop"
ORDER_BUCKETS = 8
_ORDERS = 4_000
_DEVICES = 600
_EVENT_DAYS = 3

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row. `row` is its newest value, or None when it is deleted. `key` names the row for ever."""

    key: int | str
    row: Row | None


MakeChanges = Callable[[random.Random, datetime, int, int], Sequence[Change]]
"""Makes up changes. Its arguments are a source of randomness, the time, the first unused number, and how many changes to make."""


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A table and its writer's habits.

    A commit has the files of `subtasks` parallel writers, as with Flink, and `changes_per_commit` changes in all. `make demo ONCE=1` writes
    `backlog_share` of its files to this table.
    """

    name: str
    schema: Schema
    spec: PartitionSpec
    key: str | None
    partition_of: Callable[[Change], Record]
    make_changes: MakeChanges
    changes_per_commit: int
    subtasks: int
    backlog_share: float
    says_watermarks: bool = False
    """Whether its events occur in the demo's own time, and each commit says up to which time they are complete."""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def key_field_id(self) -> int:
        """The field id of the key column. Only upserted tables have one."""
        assert self.key is not None
        return self.schema.find_field(self.key).field_id


def _event_changes(chance: random.Random, now: datetime, first: int, count: int) -> list[Change]:
    changes = []
    for number in range(first, first + count):
        late = timedelta(days=chance.randrange(_EVENT_DAYS), seconds=chance.randrange(3600))
        amount = Decimal(chance.randrange(100, 50_000)).scaleb(-2) if chance.random() < 0.4 else None
        changes.append(
            Change(
                number,
                {
                    "event_id": number,
                    "occurred_at": now - late,
                    "kind": chance.choice(("view", "search", "cart", "buy")),
                    "visitor": chance.randrange(1, 5_000),
                    "amount": amount,
                },
            )
        )
    return changes


def _order_changes(chance: random.Random, now: datetime, first: int, count: int) -> list[Change]:
    changes: list[Change] = []
    for _ in range(count):
        # Flink writes a position delete when a key changes twice within one commit.
        again = changes and chance.random() < 0.05
        number = int(changes[-1].key) if again else chance.randrange(1, _ORDERS + 1)
        if chance.random() < 0.08:
            changes.append(Change(number, None))
            continue
        changes.append(
            Change(
                number,
                {
                    "order_id": number,
                    "customer": f"customer-{number % 997}",
                    "status": chance.choice(("placed", "paid", "packed", "sent", "returned")),
                    "amount": Decimal(chance.randrange(500, 90_000)).scaleb(-2),
                    "note": None if chance.random() < 0.7 else f"note {chance.getrandbits(40):x}",
                    "updated_at": now,
                },
            )
        )
    return changes


def _device_changes(chance: random.Random, now: datetime, first: int, count: int) -> list[Change]:
    changes: list[Change] = []
    for _ in range(count):
        again = changes and chance.random() < 0.05
        name = str(changes[-1].key) if again else f"device-{chance.randrange(_DEVICES):04d}"
        changes.append(
            Change(
                name,
                None
                if chance.random() < 0.02
                else {
                    "device_id": name,
                    "temperature": round(chance.gauss(21, 4), 3),
                    "battery": chance.randrange(0, 101),
                    "seen_at": now,
                },
            )
        )
    return changes


_by_day: DayTransform[Any] = DayTransform()
_day = _by_day.transform(TimestamptzType())
_bucket = BucketTransform(ORDER_BUCKETS).transform(LongType())


def _event_partition(change: Change) -> Record:
    assert change.row is not None
    occurred_at = change.row["occurred_at"]
    assert isinstance(occurred_at, datetime)
    return Record(_day(datetime_to_micros(occurred_at)))


# The sizes are small, because the demo's files have a few kB, and a person wants to see something within a minute.
PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "self-optimizing.target-size": str(8 * 1024 * 1024),
    "self-optimizing.min-plan-interval": "5000",
    "self-optimizing.commit.interval": "10000",
    # With a commit every few seconds, the metadata would grow faster than the data without these.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Snapshots are old after a minute, so that a person sees files go.
    "table-expire.enabled": "true",
    "history.expire.max-snapshot-age-ms": "60000",
    "compaction.expire.grace": "60s",
    "compaction.rewrite-manifests.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
}

EVENTS = DemoTable(
    name="events",
    schema=Schema(
        NestedField(1, "event_id", LongType(), required=True),
        NestedField(2, "occurred_at", TimestamptzType(), required=True),
        NestedField(3, "kind", StringType(), required=False),
        NestedField(4, "visitor", LongType(), required=False),
        NestedField(5, "amount", DecimalType(10, 2), required=False),
    ),
    spec=PartitionSpec(PartitionField(2, 1000, DayTransform(), "occurred_day")),
    key=None,
    partition_of=_event_partition,
    make_changes=_event_changes,
    changes_per_commit=200,
    subtasks=2,
    backlog_share=0.25,
    says_watermarks=True,
    properties={"compaction.ready-when": "watermark"},
)

ORDERS = DemoTable(
    name="orders",
    schema=Schema(
        NestedField(1, "order_id", LongType(), required=True),
        NestedField(2, "customer", StringType(), required=False),
        NestedField(3, "status", StringType(), required=False),
        NestedField(4, "amount", DecimalType(12, 2), required=False),
        NestedField(5, "note", StringType(), required=False),
        NestedField(6, "updated_at", TimestamptzType(), required=False),
        identifier_field_ids=[1],
    ),
    spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(ORDER_BUCKETS), "order_id_bucket")),
    key="order_id",
    partition_of=lambda change: Record(_bucket(change.key)),
    make_changes=_order_changes,
    changes_per_commit=160,
    subtasks=1,
    backlog_share=0.55,
)

DEVICES = DemoTable(
    name="devices",
    schema=Schema(
        NestedField(1, "device_id", StringType(), required=True),
        NestedField(2, "temperature", DoubleType(), required=False),
        NestedField(3, "battery", IntegerType(), required=False),
        NestedField(4, "seen_at", TimestamptzType(), required=False),
        identifier_field_ids=[1],
    ),
    spec=PartitionSpec(),
    key="device_id",
    partition_of=lambda change: Record(),
    make_changes=_device_changes,
    changes_per_commit=60,
    subtasks=2,
    backlog_share=0.20,
)

TABLES: Mapping[str, DemoTable] = {table.name: table for table in (EVENTS, ORDERS, DEVICES)}
