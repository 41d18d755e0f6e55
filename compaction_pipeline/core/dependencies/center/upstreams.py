"""Says what one period of a job's upstream is: another job's run, a window of a table or an asset, a partition, or a watermark.

Each kind is one class here, and a detector elsewhere that finds out when it is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar
from compaction_pipeline.core.dependencies.center.subjects import (
    JOB,
    TABLE,
    WATERMARK,
    Subject,
    key_of,
    subject_of,
    watermark_bound,
    window_text,
)
from compaction_pipeline.core.errors import ConfigError

_PATTERN = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class JobRun:
    """The run of another job for a business time. `part` is one of the parts that a virtual job declares; "" for the whole of it."""

    job: str
    part: str = ""

    def __str__(self) -> str:
        return f"{JOB}={self.job}" + (f" && part={self.part}" if self.part else "")


@dataclass(frozen=True, slots=True)
class DataWindow:
    """The data of a table or an asset (`kind`) from the start of a period to its end: every partition that overlaps it."""

    kind: str
    name: str

    def subject(self, calendar: Calendar, time: BusinessTime) -> Subject:
        return Subject(key_of(self.kind, self.name, window=window_text(calendar.start(time), calendar.end(time))))

    def __str__(self) -> str:
        return f"{self.kind}={self.name}"


@dataclass(frozen=True, slots=True)
class TablePartition:
    """One partition of a table for each period. `pattern` is its name, where braces hold the period's start: `dt={%Y%m%d}/app=ads`."""

    table: str
    pattern: str

    def subject(self, calendar: Calendar, time: BusinessTime) -> Subject:
        local = calendar.start(time).astimezone(ZoneInfo(calendar.zone))
        named = _PATTERN.sub(lambda found: local.strftime(found[1]), self.pattern)
        return subject_of(f"{TABLE}={self.table} && {named.replace('/', ' && ')}")

    def __str__(self) -> str:
        return f"{TABLE}={self.table} && {self.pattern.replace('/', ' && ')}"


@dataclass(frozen=True, slots=True)
class TableWatermark:
    """The watermark of a table, when it has reached the end of a period."""

    table: str

    def subject(self, calendar: Calendar, time: BusinessTime) -> Subject:
        return Subject(key_of(TABLE, self.table, **{WATERMARK: ""}), watermark_bound(calendar.end(time)))

    def __str__(self) -> str:
        return f"{TABLE}={self.table} && {WATERMARK}"


Upstream = JobRun | DataWindow | TablePartition | TableWatermark


def data_name(upstream: DataWindow | TablePartition | TableWatermark) -> str:
    """The table or asset of an upstream, as jobs say that they produce it."""
    return str(upstream) if isinstance(upstream, DataWindow) else f"{TABLE}={upstream.table}"


def table_partition(table: str, pattern: str) -> TablePartition:
    """A partition by its pattern. Raises ConfigError for a pattern without a time, or one that names no partition."""
    if not _PATTERN.search(pattern) or not all("=" in one for one in pattern.split("/")):
        raise ConfigError(f"'partition' is {pattern!r} but must be like dt={{%Y%m%d}}/app=ads, with the period in braces")
    return TablePartition(table, pattern)
