"""Tells which values of a column are old: which times lie so far back that their rows expire.

A value is old only when its whole unit is over: a date when the day is over, a text like `2026-01` when the month is. Times without a zone,
and texts, are in UTC. What is no time is never old: NULL, a text that is not written as the pattern says, and anything that means a time
before 1980. There, 0 and 1970-01-01 often stand for "unknown", and seconds that are read as milliseconds, and milliseconds as microseconds,
all lie in the years before: Iceberg's `add_files` writes such bounds for Parquet files whose times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.tables.calendar import days_of, micros_of_moment
from compaction_pipeline.core.tables.columns import BoundValue, Column, bound_value
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.tables.time_pattern import has_form, unit_text

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICRO, _DAY = timedelta(microseconds=1), timedelta(days=1)
_MICROS_OF: Mapping[str, int] = {"TIMESTAMP_S": 1_000_000, "TIMESTAMP_MS": 1_000}
_FIRST = datetime(1980, 1, 1, tzinfo=timezone.utc)
"""What means an earlier time means none. Twelve digits of a calendar, such as 202403311100, are milliseconds of the years before, too."""
_TIMES = ("timestamp", "timestamptz")
KINDS = ("date", *_TIMES, "long", "string")
"""The types that the column may have. Amoro has no dates, because Java's `Literal` has no number for them."""


@dataclass(frozen=True, slots=True)
class OldValues:
    """The old values of one column: those from `least` on that are below `below`.

    Values are as bounds hold them (`bound_value`): microseconds, days, whole numbers, and the bytes of texts. Texts are written in the
    `pattern`. `by_transform` has, of each transform of partitions that keeps the order of times, the value of the first moment that is not
    old.
    """

    column: Column
    below: BoundValue
    least: BoundValue
    pattern: str | None = None
    by_transform: Mapping[str, int] = field(default_factory=dict)

    def has(self, value: BoundValue | None) -> bool:
        """Whether a value is old; None stands for NULL."""
        # Values of one column compare with each other. mypy cannot know that.
        return value is not None and self._is_time(value, made_larger=False) and value < self.below  # type: ignore[operator]

    def bound(self, data: bytes | None, *, is_upper: bool) -> BoundValue | None:
        """The value of a bound of the column; None when there is none, or when its bytes mean no time: it proves nothing then."""
        value = self._bound(data)
        return value if value is not None and self._is_time(value, made_larger=is_upper) else None

    def _is_time(self, value: BoundValue, *, made_larger: bool) -> bool:
        if self.pattern is not None and isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                return False
            if not has_form(self.pattern, text, made_larger=made_larger):
                return False
        return value >= self.least  # type: ignore[operator]

    def _bound(self, data: bytes | None) -> BoundValue | None:
        if data is None:
            return None
        # Files from before an int became a long have bounds of four bytes.
        kind = "int" if self.column.type == "long" and len(data) == 4 else self.column.type
        try:
            return bound_value(kind, data)
        except ValueError:
            return None

    def of_partition(self, transform: str, value: PartitionValue) -> bool | None:
        """Whether all rows of a partition are old (True), all are younger or no times (False), or the partition does not tell (None).

        `value` is that of one of its fields, which is made of the column by this transform.
        """
        limit = self.by_transform.get(transform)
        if transform != "identity" and limit is None:
            return None
        if value.value is None:
            return False
        if limit is None:
            return self.has(self._value(value.value))
        # A day is written as a date, the other units as numbers.
        number = days_of(value.value) if isinstance(value.value, str) else int(value.value)
        return None if number == limit else number < limit

    def _value(self, written: str | int | float | bool) -> BoundValue:
        """A partition value of the column itself, as a bound would hold it."""
        if not isinstance(written, str):
            return written
        if self.column.type == "date":
            return days_of(written)
        if self.column.type in _TIMES:
            return micros_of_moment(written, utc=self.column.type == "timestamptz")
        return written.encode()


def old_values(column: Column, cutoff: datetime, string_pattern: str, number_format: str) -> OldValues:
    """Return which values of a column mean a time before the cutoff. The type of the column is one of KINDS.

    `string_pattern` says how texts are written, `number_format` what whole numbers count.
    """
    at = cutoff.astimezone(timezone.utc)
    micros, days = (at - _EPOCH) // _MICRO, (at - _EPOCH) // _DAY
    calendar = {"day": days, "month": (at.year - 1970) * 12 + at.month - 1, "year": at.year - 1970}
    if column.type == "string":
        return OldValues(column, unit_text(string_pattern, at), unit_text(string_pattern, _FIRST), string_pattern)
    if column.type == "long":
        unit = _MICROS_OF[number_format]
        # The first number that is not before the cutoff.
        return OldValues(column, -(-micros // unit), (_FIRST - _EPOCH) // _MICRO // unit)
    if column.type == "date":
        return OldValues(column, days, (_FIRST - _EPOCH) // _DAY, by_transform=calendar)
    return OldValues(column, micros, (_FIRST - _EPOCH) // _MICRO, by_transform={**calendar, "hour": (at - _EPOCH) // timedelta(hours=1)})
