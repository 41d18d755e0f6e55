"""Decides which time a partition stands for: the window of each value of a partition field, in the calendar of the field's time zone.

Fields by day, hour, month or year have their time by themselves, in UTC; those of a timestamp without a zone may be given one. Texts and
whole numbers (`dt=20260101`) need a format and a zone. Fields by bucket, truncate and void tell no time.

A window begins at the first instant whose local time is in the unit, and ends behind the last one. So a day in which clocks go forward has
23 hours, and one in which they go back has 25. A local hour that does not exist has an empty window, and a repeated one lasts two hours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.local_time import behind_last, first_instant
from compaction_pipeline.core.tables.ready_properties import READY_TIME_KEY, READY_TIME_RULE, ready_time_parts
from compaction_pipeline.core.tables.time_pattern import has_form, pattern_parts

YEAR, MONTH, DAY, HOUR = range(4)
"""The units in the order of `pattern_parts`."""
_UNIT_OF = {"year": YEAR, "month": MONTH, "day": DAY, "hour": HOUR}
_PATH_FORMATS = {YEAR: "yyyy", MONTH: "yyyy-MM", DAY: "yyyy-MM-dd", HOUR: "yyyy-MM-dd-HH"}
"""How Iceberg writes values of transforms in the paths of partitions."""
_WITH_ZONE = ("timestamptz", "timestamptz_ns")
_WITHOUT_ZONE = ("timestamp", "timestamp_ns", "date")
_WRITTEN = ("string", "int", "long")
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Window:
    """The time from `start` on and before `end`, both in UTC."""

    start: datetime
    end: datetime

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end

    def overlaps(self, other: Window) -> bool:
        """Whether some instant lies in both."""
        return max(self.start, other.start) < min(self.end, other.end)

    def __str__(self) -> str:
        return f"{instant_text(self.start)}/{instant_text(self.end)}"


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a partition spec, as the table's metadata writes it.

    `source_id` is the id of the column that it is made of, or of the first of several. `source_type` is the type of that column, or "" when
    it is a struct, a list, a map, or not in any schema.
    """

    name: str
    transform: str
    source_id: int
    source_type: str


@dataclass(frozen=True, slots=True)
class ReadyTime:
    """The value of `compaction.ready-time`: a partition field, and the format and the zone of its times, or "" where the field tells."""

    field: str
    format: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field of a partition spec that tells a time: its name, its unit, how its values are written, and in which zone.

    `transform` is `identity`, or one of day, hour, month and year, whose values are numbers since 1970, or a date.
    """

    name: str
    transform: str
    unit: int
    format: str
    zone: tzinfo = timezone.utc

    def window(self, value: str | int | float | bool | None) -> Window | None:
        """The window of a value as `PartitionValue` has it; None when the value means no time: NULL, or a text of another form."""
        if value is None or isinstance(value, (bool, float)):
            return None
        if isinstance(value, str) or self.transform == "identity":
            return self.named(str(value))
        return self._of_start(_start_of_number(self.unit, value))

    def named(self, text: str) -> Window | None:
        """The window of a value as the path of a partition has it; None when it means no time."""
        parts = pattern_parts(self.format)
        # A long text may be a beginning for `has_form`, because bounds of columns are cut.
        if len(text) != sum(len(letters) for _, letters in parts) or not has_form(self.format, text):
            return None
        digits, position = [1970, 1, 1, 0], 0
        for unit, letters in parts:
            if unit is not None:
                digits[unit] = int(text[position : position + len(letters)])
            position += len(letters)
        try:
            return self._of_start(datetime(*digits))  # type: ignore[arg-type]
        except ValueError:
            return None

    def of_moment(self, moment: datetime) -> Window | None:
        """The window of the unit in which a moment lies; None beyond the years of Python."""
        try:
            local = moment.astimezone(self.zone)
        except OverflowError:
            return None
        fields = (local.year, local.month, local.day, local.hour)[: self.unit + 1]
        return self._of_start(datetime(*(*fields, *(1, 1, 1, 0)[self.unit + 1 :])))  # type: ignore[arg-type]

    def _of_start(self, start: datetime | None) -> Window | None:
        try:
            return None if start is None else Window(first_instant(start, self.zone), behind_last(_next(start, self.unit), self.zone))
        except (OverflowError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks of a table: partitions, named as in the paths of files, or a window. One of the two is there."""

    partitions: tuple[str, ...] = ()
    window: Window | None = None


def question(
    partitions: Sequence[str], start: str | None, end: str | None, keys: tuple[str, str, str] = ("partition", "from", "to")
) -> Question:
    """The question that somebody writes: names of partitions, or the two times of a window.

    `keys` are those under which all three are written, for errors. Raises ConfigError for both, for neither, and for half a window.
    """
    named, first, last = keys
    if (start is None) != (end is None):
        raise ConfigError(f"{first} and {last} belong together: give both, or name partitions in {named} instead")
    window = Window(instant_of(start), instant_of(end)) if start is not None and end is not None else None
    if bool(partitions) == (window is not None):
        raise ConfigError(
            f"name partitions, such as day=2026-01-01, in {named}, or give a window by {first} and {last}; one of the two, not both"
        )
    return Question(tuple(partitions), window)


def instant_text(at: datetime) -> str:
    """An instant in UTC, e.g. `2026-01-01T03:00Z`; with seconds only where it has some."""
    utc = at.astimezone(timezone.utc)
    return f"{utc.replace(tzinfo=None).isoformat(timespec='auto' if utc.second or utc.microsecond else 'minutes')}Z"


def instant_of(text: str) -> datetime:
    """An instant as people write it: ISO 8601 with a zone, e.g. `2026-01-01T03:00Z`.

    Raises ConfigError for any other text, and for a time beyond the years 1 to 9999 in UTC.
    """
    try:
        # Python 3.10 reads no Z.
        at = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ConfigError(f"{text!r} is no time with a zone: write it like 2026-01-01T03:00Z or 2026-01-01T04:00+01:00")
    try:
        return at.astimezone(timezone.utc)
    except OverflowError:
        raise ConfigError(f"{text!r} is before the year 1 or behind the year 9999 in UTC: write a time between them") from None


def ready_time(properties: Mapping[str, str]) -> ReadyTime | None:
    """The value of the property among those in force; None when it is not set. Raises ConfigError when it breaks its rule."""
    text = properties.get(READY_TIME_KEY)
    if text is None:
        return None
    try:
        return ReadyTime(*ready_time_parts(text))
    except ValueError:
        raise ConfigError(f"'{READY_TIME_KEY}' is {text!r} but must be {READY_TIME_RULE}: {_CORRECT}") from None


_CORRECT = "correct the property of the table, of its namespace or of its catalog"


def time_fields(specs: Mapping[int, Sequence[SpecField]], said: ReadyTime | None) -> Mapping[int, TimeField]:
    """The field of each spec that tells the time of its partitions. Specs that have none are left out.

    Where nothing is said, it is the only field by day, hour, month or year, or the only date. Specs that evolved may name it otherwise, and
    may have another unit: what counts is that it is made of the same column. Raises ConfigError, which names the property, when no spec has
    such a field, when one has several, and when what is said does not fit the field.
    """
    if said is None:
        return _by_themselves(specs)
    sources = {field.source_id for fields in specs.values() for field in fields if field.name == said.field and _tells_time(field)}
    if not sources:
        known = sorted({field.name for fields in specs.values() for field in fields})
        raise ConfigError(
            f"'{READY_TIME_KEY}' names {said.field!r}, but that is no partition field with a time; the partition fields are "
            f"{', '.join(known) or 'none'}: {_CORRECT}"
        )
    found: dict[int, TimeField] = {}
    for spec_id, fields in specs.items():
        ours = [field for field in fields if field.source_id in sources and _tells_time(field)]
        chosen = next((field for field in ours if field.name == said.field), ours[0] if ours else None)
        if chosen is not None:
            found[spec_id] = _time_field(chosen, said)
    return found


def _by_themselves(specs: Mapping[int, Sequence[SpecField]]) -> Mapping[int, TimeField]:
    found: dict[int, TimeField] = {}
    sources: dict[int, str] = {}
    for spec_id, fields in specs.items():
        ours = [field for field in fields if _tells_time(field) and field.source_type not in _WRITTEN]
        if len(ours) > 1:
            names = ", ".join(field.name for field in ours)
            raise ConfigError(f"the partition fields {names} all tell a time: name the one that counts in '{READY_TIME_KEY}'")
        if ours:
            found[spec_id] = _time_field(ours[0], ReadyTime(ours[0].name))
            sources.setdefault(ours[0].source_id, ours[0].name)
    if len(sources) > 1:
        names = ", ".join(sources.values())
        raise ConfigError(
            f"the partition fields {names} of several specs tell times of different columns: name the one that counts in '{READY_TIME_KEY}'"
        )
    if found:
        return found
    names = ", ".join(sorted({field.name for fields in specs.values() for field in fields}))
    fields_in_words = f"its partition fields are {names}" if names else "it is not partitioned"
    raise ConfigError(
        f"no partition field of the table is by day, hour, month or year ({fields_in_words}): set '{READY_TIME_KEY}' to a field whose "
        "values are times, with their format and zone, e.g. 'dt,yyyyMMdd,Europe/Berlin'; where there is none, `compaction-pipeline "
        "watermark` tells up to when the data of the whole table is complete"
    )


def _tells_time(field: SpecField) -> bool:
    return field.transform in _UNIT_OF or (field.transform == "identity" and field.source_type in ("date", *_WRITTEN))


def _time_field(field: SpecField, said: ReadyTime) -> TimeField:
    if field.transform == "identity" and field.source_type in _WRITTEN:
        if not said.format or not said.zone:
            raise ConfigError(
                f"partition field {field.name} is of type {field.source_type}, so '{READY_TIME_KEY}' must say its format and its zone, "
                f"e.g. '{field.name},yyyyMMdd,Europe/Berlin': {_CORRECT}"
            )
        unit = max(unit for unit, _ in pattern_parts(said.format) if unit is not None)
        return TimeField(field.name, field.transform, unit, said.format, _zone(said.zone))
    if said.format:
        raise ConfigError(
            f"'{READY_TIME_KEY}' gives partition field {field.name} the format {said.format!r}, but its values are dates or numbers and "
            f"need none: {_CORRECT}"
        )
    if said.zone and field.source_type in _WITH_ZONE:
        raise ConfigError(
            f"'{READY_TIME_KEY}' gives partition field {field.name} the zone {said.zone!r}, but a {field.source_type} is partitioned in "
            f"UTC: write '{field.name}' alone"
        )
    unit = DAY if field.transform == "identity" else _UNIT_OF[field.transform]
    return TimeField(field.name, field.transform, unit, _PATH_FORMATS[unit], _zone(said.zone) if said.zone else timezone.utc)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # `ZoneInfoNotFoundError` is a KeyError; names like "../x" and "" raise others.
        raise ConfigError(
            f"'{READY_TIME_KEY}' names the zone {name!r}, which this host does not know: write a zone like Europe/Berlin or UTC"
        ) from None


def _start_of_number(unit: int, number: int) -> datetime | None:
    try:
        if unit == YEAR:
            return datetime(1970 + number, 1, 1)
        if unit == MONTH:
            return datetime(1970 + number // 12, number % 12 + 1, 1)
        return _EPOCH + (timedelta(days=number) if unit == DAY else timedelta(hours=number))
    except (OverflowError, ValueError):
        return None


def _next(start: datetime, unit: int) -> datetime:
    if unit == YEAR:
        return start.replace(year=start.year + 1)
    if unit == MONTH:
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + (timedelta(days=1) if unit == DAY else timedelta(hours=1))
