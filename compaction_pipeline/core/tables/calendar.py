"""Converts dates, times and timestamps to ISO 8601 text and back, for every number that Iceberg can hold.

Python's own dates reach from the year 1 to the year 9999. Dates of Spark and Java, and so partition values, may be earlier or later. Years
that Python does not have are written as Java writes them: with a sign and at least four digits (`+10000-01-01`, `-0044-03-15`). A date is
a number of days since 1970-01-01. A time is a number of microseconds since midnight, a timestamp since 1970-01-01. The calendar is the
Gregorian one for all years, even before it was introduced.
"""

from __future__ import annotations

import re

_MICROS_PER_SECOND = 1_000_000
_MICROS_PER_DAY = 86_400 * _MICROS_PER_SECOND
_DAYS_PER_ERA = 146_097
"""Days of 400 years."""
_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""

_DATE = re.compile(r"([+-]?\d{4,})-(\d{2})-(\d{2})")
_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")
_UTC = re.compile(r"(?:Z|[+-]00:00)$")


def date_text(days: int) -> str:
    """Return a date as text, for example `2024-02-29`."""
    shifted = days + _EPOCH
    era, day_of_era = divmod(shifted, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    # Years begin in March here, so that the leap day is the last day of its year.
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = era * 400 + year_of_era + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def days_of(text: str) -> int:
    """Return the days since 1970-01-01 of a date's text. Raises ValueError for any other text, and for a day that does not exist."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date: write it like 2024-02-29")
    year, month, day = (int(part) for part in found.groups())
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * _DAYS_PER_ERA + 365 * year_of_era + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH
    if not 1 <= month <= 12 or date_text(days)[-5:] != f"{month:02d}-{day:02d}":
        raise ValueError(f"{text!r} is not a date: this day does not exist")
    return days


def time_text(micros: int) -> str:
    """Return a time as text, for example `22:31:08.123456`; without the fraction when it is zero."""
    seconds, fraction = divmod(micros, _MICROS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:06d}" if fraction else text


def micros_of_time(text: str) -> int:
    """Return the microseconds since midnight of a time's text. Raises ValueError for any other text."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time: write it like 22:31:08.123456")
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time: hours end at 23, minutes and seconds at 59")
    return ((hour * 60 + minute) * 60 + second) * _MICROS_PER_SECOND + int((found.group(4) or "").ljust(6, "0"))


def moment_text(micros: int, *, utc: bool) -> str:
    """Return a timestamp as text, for example `2017-11-16T22:31:08.123456`.

    `utc` is True for a timestamp with a time zone, which is in UTC and ends with `+00:00`.
    """
    days, rest = divmod(micros, _MICROS_PER_DAY)
    return f"{date_text(days)}T{time_text(rest)}{'+00:00' if utc else ''}"


def micros_of_moment(text: str, *, utc: bool) -> int:
    """Return the microseconds since 1970-01-01 of a timestamp's text.

    `utc` is True for a timestamp with a time zone. Raises ValueError for any other text.
    """
    plain = _UTC.sub("", text)
    if (plain != text) is not utc:
        rule = "in UTC: it must end with +00:00" if utc else "without a time zone: it must not end with one"
        raise ValueError(f"{text!r} is not a timestamp {rule}")
    date, separator, time = plain.partition("T")
    if not separator:
        raise ValueError(f"{text!r} is not a timestamp: write it like 2017-11-16T22:31:08.123456")
    return days_of(date) * _MICROS_PER_DAY + micros_of_time(time)
