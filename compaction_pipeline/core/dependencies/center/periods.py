"""Business times: the hours, days, weeks and months that jobs produce data of, and the calendars that order them.

    hours = Calendar(Period.HOUR, "Europe/Berlin")
    third = hours.parse("2026-01-01T03")            # or 2026-01-01T03+0100, or 2026-01-01T02Z
    hours.start(third), hours.end(third)            # both in UTC
    hours.text(hours.shift(third, -1))              # 2026-01-01T02

An hour is an instant: a whole hour of UTC. A day, an ISO week and a month are labels of local dates, which begin at the first instant
of their first date in the zone. So days have 23, 24 or 25 hours. A day that clocks leave out (Apia had no 2011-12-30) does not exist: it
has no text that can be read, and nothing shifts to it.

`Calendar.text` names an hour without its offset, unless its local time had been there an hour before: `2026-10-25T02`, then
`2026-10-25T02+0100`. So a text names one time, and texts sort as times do, except in a zone that turns its clocks back by more than one
hour (Antarctica/Troll). `Calendar.printed` always has the offset, for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock_time
from enum import Enum
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.local_time import first_instant

FIRST_YEAR, LAST_YEAR = 1900, 2999
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SECOND = timedelta(seconds=1)
_HOUR = 3600
_HOUR_FORM = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)(?::(\d\d)(?::(\d\d))?)?(Z|[+-]\d\d:?[0-5]\d(?::?[0-5]\d)?)?")
_WEEK_FORM = re.compile(r"(\d{4})-W(\d\d)")
_DAY_FORM = re.compile(r"\d{4}-\d\d-\d\d")
_MONTH_FORM = re.compile(r"(\d{4})-(\d\d)")


class Period(str, Enum):
    """How much time the data of one instance covers."""

    HOUR = "HOUR"
    DAY = "DAY"
    WEEK = "WEEK"
    MONTH = "MONTH"


EXAMPLES = {
    Period.HOUR: "2026-01-01T03, and 2026-10-25T02+0100 for the second of two equal hours",
    Period.DAY: "2026-01-01",
    Period.WEEK: "2026-W01",
    Period.MONTH: "2026-01",
}


class BusinessTime(NamedTuple):
    """One period of a calendar. Times of one period are ordered as they follow each other.

    `number` counts the periods since the one that holds 1970-01-01: hours of UTC, local days, weeks from Monday on, months.
    """

    period: Period
    number: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """The periods of one length in one zone, an IANA name. Raises ConfigError when this host does not know the zone."""

    period: Period
    zone: str

    def __post_init__(self) -> None:
        zone_of(self.zone)

    def parse(self, text: str) -> BusinessTime:
        """The time with this text. Raises ConfigError for another form, for a time that does not exist, and beyond 1900 to 2999."""
        return _parsed(self, text)

    def text(self, time: BusinessTime) -> str:
        """The one text of a time, which `parse` reads back."""
        if self.period is Period.HOUR:
            local = self._local_hour(time)
            return local.strftime(_hour_format(local) + ("%z" if local.fold else ""))
        return _label(self.period, time.number)

    def printed(self, time: BusinessTime) -> str:
        """The text of a time for people: that of an hour always has its offset. `parse` reads it, too."""
        if self.period is Period.HOUR:
            local = self._local_hour(time)
            return local.strftime(_hour_format(local) + "%z")
        return _label(self.period, time.number)

    def start(self, time: BusinessTime) -> datetime:
        """The first instant of a time, in UTC."""
        return _EPOCH + timedelta(seconds=self.opens(time.number))

    def end(self, time: BusinessTime) -> datetime:
        """The first instant behind a time, in UTC: the start of the next one."""
        return _EPOCH + timedelta(seconds=self.opens(time.number + 1))

    def shift(self, time: BusinessTime, by: int) -> BusinessTime | None:
        """The time `by` places behind `time`, or before it when `by` is negative.

        Days are counted by label. None when the zone left that day out, and beyond the years 1900 to 2999.
        """
        number = time.number + by
        return BusinessTime(self.period, number) if self.has(number) else None

    def at(self, instant: datetime) -> BusinessTime:
        """The time that holds an instant. Raises ConfigError beyond the years 1900 to 2999, and ValueError for a time without a zone."""
        number = self.number_at((_aware(instant) - _EPOCH) // _SECOND)
        if not self.has(number):
            raise ConfigError(
                f"{instant.isoformat()} lies beyond the years {FIRST_YEAR} to {LAST_YEAR} of business times: name another time"
            )
        return BusinessTime(self.period, number)

    def between(self, start: datetime, end: datetime) -> Iterator[BusinessTime]:
        """The times that start at `start` or later and before `end`, in order. Raises as `at` does."""
        first, behind = (-((_EPOCH - _aware(instant)) // _SECOND) for instant in (start, end))
        number = self.at(start).number
        number += self.opens(number) < first
        while self.opens(number) < behind and number <= _SPANS[self.period][1]:
            if self.has(number):
                yield BusinessTime(self.period, number)
            number += 1

    def run(self, first: int, last: int) -> list[BusinessTime]:
        """The times from one number to another, both included, without those that do not exist."""
        lowest, highest = _SPANS[self.period]
        numbers = range(max(first, lowest), min(last, highest) + 1)
        if self.period is Period.DAY:
            return [BusinessTime(Period.DAY, number) for number in numbers if self.has(number)]
        return [BusinessTime(self.period, number) for number in numbers]

    def has(self, number: int) -> bool:
        """Whether there is a time with this number: not for a day that the zone left out, and not beyond the years 1900 to 2999."""
        if self.period is Period.DAY and self.is_in_span(number):
            return _day_opens(self.zone, number) < _day_opens(self.zone, number + 1)
        return self.is_in_span(number)

    def opens(self, number: int) -> int:
        """The first second of the time with this number, since 1970 in UTC."""
        if self.period is Period.HOUR:
            return number * _HOUR
        return _day_opens(self.zone, first_day(self.period, number))

    def number_at(self, second: int) -> int:
        """The number of the time that holds a second since 1970 in UTC."""
        if self.period is Period.HOUR:
            return second // _HOUR
        return number_of_day(self.period, _day_at(self.zone, second))

    def is_in_span(self, number: int) -> bool:
        """Whether this number is within the years 1900 to 2999."""
        first, last = _SPANS[self.period]
        return first <= number <= last

    def _local_hour(self, time: BusinessTime) -> datetime:
        return self.start(time).astimezone(zone_of(self.zone))


def first_time(period: Period) -> BusinessTime:
    """The first time of a period that there is."""
    return BusinessTime(period, _SPANS[period][0])


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone with an IANA name. Raises ConfigError when this host does not know it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # `ZoneInfoNotFoundError` is a KeyError; names like "../x" and "" raise others.
        raise ConfigError(f"this host does not know the zone {name!r}: write a zone like Europe/Berlin or UTC") from None


def check_written(text: str) -> None:
    """Raises ConfigError for a text that is no business time of any period. Which times there are, the calendar of a job says."""
    if not text.isascii() or not any(form.fullmatch(text) for form in (_HOUR_FORM, _DAY_FORM, _WEEK_FORM, _MONTH_FORM)):
        raise ConfigError(f"the business time {text!r} has no form of one: write it like {', '.join(EXAMPLES.values())}, as its job does")


def first_day(period: Period, number: int) -> int:
    """The number of the first day of a week or month; of a day its own."""
    if period is Period.DAY:
        return number
    return number * 7 - 3 if period is Period.WEEK else _month_day(number)


def number_of_day(period: Period, day: int) -> int:
    """The number of the day, week or month in which a day lies."""
    if period is Period.DAY:
        return day
    return (day + 3) // 7 if period is Period.WEEK else _day_month(day)


@lru_cache(maxsize=2**14)
def _month_day(number: int) -> int:
    return date(1970 + number // 12, number % 12 + 1, 1).toordinal() - _EPOCH_DAY


@lru_cache(maxsize=2**14)
def _day_month(day: int) -> int:
    its_date = _date(day)
    return (its_date.year - 1970) * 12 + its_date.month - 1


@lru_cache(maxsize=2**17)
def _day_opens(zone: str, day: int) -> int:
    return (first_instant(datetime.combine(_date(day), clock_time()), zone_of(zone)) - _EPOCH) // _SECOND


def _day_at(zone: str, second: int) -> int:
    local = (_EPOCH + timedelta(seconds=second)).astimezone(zone_of(zone))
    day = local.toordinal() - _EPOCH_DAY
    # Clocks that go back over midnight repeat the end of a day whose successor has begun.
    return day + 1 if local.fold and _day_opens(zone, day + 1) <= second else day


def _date(day: int) -> date:
    return date.fromordinal(day + _EPOCH_DAY)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no zone")
    return instant


def _hour_format(local: datetime) -> str:
    minutes = "" if local.minute == local.second == 0 else ":%M" if local.second == 0 else ":%M:%S"
    return f"%Y-%m-%dT%H{minutes}"


def _label(period: Period, number: int) -> str:
    day = _date(first_day(period, number))
    if period is Period.WEEK:
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat() if period is Period.DAY else f"{day.year}-{day.month:02}"


@lru_cache(maxsize=2**12)
def _parsed(calendar: Calendar, text: str) -> BusinessTime:
    """See `Calendar.parse`. At one trigger many jobs ask for the same."""
    period, zone = calendar.period, calendar.zone
    try:
        number = _PARSERS[period](text.strip(), zone)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"the business time {text!r} is no {period.value} in zone {zone}: {error}; write it like {EXAMPLES[period]}"
        ) from None
    if not calendar.is_in_span(number):
        raise ConfigError(f"the business time {text!r} is not in the years {FIRST_YEAR} to {LAST_YEAR}: write a time in them")
    if not calendar.has(number):
        raise ConfigError(f"the clocks of zone {zone} left out the day {text!r}, so it has no data: write another day")
    return BusinessTime(period, number)


def _parsed_hour(text: str, zone: str) -> int:
    day, hour, minute, second, offset = _fields(_HOUR_FORM, text)
    local = datetime.combine(date.fromisoformat(day), clock_time(int(hour), int(minute or 0), int(second or 0)))
    if offset:
        at = local.replace(tzinfo=timezone.utc) - _offset(offset)
    else:
        at = local.replace(tzinfo=zone_of(zone)).astimezone(timezone.utc)
        if at.astimezone(zone_of(zone)).replace(tzinfo=None) != local:
            raise ValueError("the clocks of that day leave it out")
    number, rest = divmod((at - _EPOCH) // _SECOND, _HOUR)
    if rest:
        raise ValueError("it is no whole hour of UTC")
    return number


def _offset(text: str) -> timedelta:
    if text == "Z":
        return timedelta(0)
    digits = text[1:].replace(":", "").ljust(6, "0")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:]))
    return -size if text[0] == "-" else size


def _parsed_day(text: str, zone: str) -> int:
    _fields(_DAY_FORM, text)
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _parsed_week(text: str, zone: str) -> int:
    year, week = _fields(_WEEK_FORM, text)
    return number_of_day(Period.WEEK, date.fromisocalendar(int(year), int(week), 1).toordinal() - _EPOCH_DAY)


def _parsed_month(text: str, zone: str) -> int:
    year, month = (int(digits) for digits in _fields(_MONTH_FORM, text))
    return number_of_day(Period.MONTH, date(year, month, 1).toordinal() - _EPOCH_DAY)


def _fields(form: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = form.fullmatch(text)
    if found is None or not text.isascii():
        raise ValueError("it has another form")
    return found.groups()


_PARSERS = {Period.HOUR: _parsed_hour, Period.DAY: _parsed_day, Period.WEEK: _parsed_week, Period.MONTH: _parsed_month}
_DAYS = tuple(date(year, 1, 1).toordinal() - _EPOCH_DAY for year in (FIRST_YEAR, LAST_YEAR + 1))
_SPANS = {Period.HOUR: (_DAYS[0] * 24, _DAYS[1] * 24 - 1)} | {
    period: (number_of_day(period, _DAYS[0]), number_of_day(period, _DAYS[1] - 1)) for period in (Period.DAY, Period.WEEK, Period.MONTH)
}
"""The first and the last number of each period."""
