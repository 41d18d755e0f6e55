"""The answer to "is it ready?": what was asked, whether it is ready, by which rule, and from what this was decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.dependencies.watermark import Watermark
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class ChangedSince:
    """A partition to which a snapshot added files after this program had called it ready. What started then ran on older data."""

    partition: str
    snapshot_id: int
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a partition or a window of a table is ready.

    `what` is the partition as it was asked for (`day=2026-01-01`), or the text of the window. `window` is its time; None for a partition
    without one. `rule` is the value of `compaction.ready-when` that counts, and `why` is a sentence. It was decided `at` this time from the
    `heads` of main of the table's stores and, where the rule asks for one, from the `watermark`.

    `ready_since` is when this program first said that it is ready, as long as it stayed so. `withdrawals` counts how often it was taken
    back. After three it `is_flapping`, and `longer_quiet` proposes a duration for `quiet` with which it had not been; None when there is
    none. `changed_since` lists late data that withdrew nothing; None when the manifests cannot be read, so nobody knows, and in
    callbacks, which read none.
    `watermark_since` is since when the writer that holds up the watermark says what it says.
    """

    table: TableIdentifier
    what: str
    window: Window | None
    ready: bool
    rule: str
    why: str
    at: datetime
    heads: tuple[int | None, ...]
    watermark: datetime | None = None
    ready_since: datetime | None = None
    withdrawals: int = 0
    longer_quiet: timedelta | None = None
    changed_since: tuple[ChangedSince, ...] | None = ()
    is_flapping: bool = False
    table_uuid: str = ""
    watermark_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class TableWatermark:
    """Up to where the data of a table is complete, as its writers say; None when they say nothing.

    It was looked for under these `keys`, from the `heads` of main of the table's stores back. `warning` says what may be wrong with it.
    """

    table: TableIdentifier
    watermark: Watermark | None
    keys: tuple[str, ...]
    heads: tuple[int | None, ...]
    warning: str | None = None


FLAPPING = 3
"""So many withdrawals of one partition say that its rule calls it ready too early."""
