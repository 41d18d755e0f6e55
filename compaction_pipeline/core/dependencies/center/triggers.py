"""When the instances of a job are made: the minute of an hour, the time of a day, of a day of the week, or of a day of the month.

    Trigger.parse(Period.HOUR, "5")             # five minutes past each hour
    Trigger.parse(Period.DAY, "02:00")
    Trigger.parse(Period.WEEK, "MON 02:00")
    Trigger.parse(Period.MONTH, "last 02:00")   # or a day from 1 to 28

The trigger of a business time lies in its own period, as the tick of a cron line has the name of its period: day 2026-01-01 of a trigger
at 02:00 in Berlin is made at 2026-01-01T02:00+01:00. A local time that does not exist means the first instant behind the gap, and a
repeated one the first of the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period, first_day, zone_of
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.local_time import first_instant

_FIRST = {Period.HOUR: "0", Period.DAY: "00:00", Period.WEEK: "MON 00:00", Period.MONTH: "1 00:00"}
LAST_DAY = 0
"""The day of the month that means its last."""
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_EPOCH_DATE = date(1970, 1, 1)
_FORMS = {
    Period.HOUR: re.compile(r"()()(\d{1,2})", re.ASCII),
    Period.DAY: re.compile(r"()(\d\d):(\d\d)", re.ASCII),
    Period.WEEK: re.compile(rf"({'|'.join(_WEEKDAYS)}) (\d\d):(\d\d)", re.ASCII),
    Period.MONTH: re.compile(r"(LAST|\d{1,2}) (\d\d):(\d\d)", re.ASCII),
}
_RULES = {
    Period.HOUR: "a minute from 0 to 59, e.g. 5",
    Period.DAY: "a time HH:MM, e.g. 02:00",
    Period.WEEK: "a weekday and a time HH:MM, e.g. MON 02:00",
    Period.MONTH: "a day from 1 to 28, or last, and a time HH:MM, e.g. 1 02:00 or last 02:00",
}


@dataclass(frozen=True, slots=True)
class Trigger:
    """A place in each period. `day` is 0 (Monday) to 6 in a week, and 1 to 28 or `LAST_DAY` in a month; what a period has not is 0."""

    period: Period
    minute: int
    hour: int = 0
    day: int = 0

    @staticmethod
    @lru_cache(maxsize=2**12)
    def parse(period: Period, text: str) -> Trigger:
        """The trigger that somebody writes for a period. Raises ConfigError, which names the text and the rule."""
        found = _FORMS[period].fullmatch(" ".join(text.upper().split()))
        if found is not None:
            day, hour, minute = found.groups()
            trigger = Trigger(period, int(minute), int(hour or 0), _day(period, day))
            if trigger.minute < 60 and trigger.hour < 24 and (period is not Period.MONTH or day == "LAST" or 1 <= trigger.day <= 28):
                return trigger
        raise ConfigError(f"the trigger {text!r} of period {period.value} must be {_RULES[period]}: correct the trigger")

    @staticmethod
    def first(period: Period) -> Trigger:
        """The beginning of a period."""
        return Trigger.parse(period, _FIRST[period])

    def text(self) -> str:
        """The text that `parse` reads back."""
        if self.period is Period.HOUR:
            return str(self.minute)
        clock = f"{self.hour:02}:{self.minute:02}"
        if self.period is Period.DAY:
            return clock
        if self.period is Period.WEEK:
            return f"{_WEEKDAYS[self.day]} {clock}"
        return f"{'last' if self.day == LAST_DAY else self.day} {clock}"

    def instant(self, calendar: Calendar, at: BusinessTime) -> datetime:
        """The instant, in UTC, at which the instance of a business time is made. The calendar has the period of this trigger.

        When clocks leave out the end of a period with the trigger in it, it is the first instant of the next period.
        """
        if self.period is Period.HOUR:
            return calendar.start(at) + timedelta(minutes=self.minute)
        if self.period is Period.MONTH:
            day = first_day(Period.MONTH, at.number + 1) - 1 if self.day == LAST_DAY else first_day(Period.MONTH, at.number) + self.day - 1
        else:
            day = first_day(self.period, at.number) + self.day
        local = datetime.combine(_EPOCH_DATE + timedelta(days=day), time(self.hour, self.minute))
        return first_instant(local, zone_of(calendar.zone)).astimezone(timezone.utc)


@lru_cache(maxsize=2**8)
def time_of_trigger(calendar: Calendar, trigger: Trigger, now: datetime) -> BusinessTime:
    """The first business time whose trigger is not over."""
    first = calendar.at(now)
    later = calendar.shift(first, 1)
    return first if trigger.instant(calendar, first) >= now or later is None else later


def _day(period: Period, text: str) -> int:
    if period is Period.WEEK:
        return _WEEKDAYS.index(text)
    return int(text) if period is Period.MONTH and text != "LAST" else 0
