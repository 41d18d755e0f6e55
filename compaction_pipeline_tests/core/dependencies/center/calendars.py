"""Calendars, times and offsets for the laws of the dependency center."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.offsets import Form, Offsets
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar, Period

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",  # clocks go forward at midnight
    "America/St_Johns",  # until 2011 clocks went back at 00:01, over midnight
    "Pacific/Apia",  # no 2011-12-30
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # clocks go by half an hour
    "Antarctica/Troll",  # clocks go by two hours
)
WHOLE_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Asia/Tokyo")
SPANS = {Period.HOUR: 1 / 24, Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 30.4}
CHANGES = (
    datetime(2026, 3, 29, 1, tzinfo=timezone.utc),
    datetime(2026, 10, 25, 1, tzinfo=timezone.utc),
    datetime(2026, 3, 8, 7, tzinfo=timezone.utc),
    datetime(2026, 11, 1, 6, tzinfo=timezone.utc),
    datetime(2026, 9, 6, 4, tzinfo=timezone.utc),
    datetime(2026, 4, 5, 3, tzinfo=timezone.utc),
    datetime(2009, 11, 1, 2, 31, tzinfo=timezone.utc),
    datetime(2011, 12, 30, 10, tzinfo=timezone.utc),
    datetime(2024, 2, 29, 12, tzinfo=timezone.utc),
    datetime(2021, 1, 1, tzinfo=timezone.utc),
)
"""Instants near which something is special: clocks change, a day is left out, a leap day, a week 53."""

periods = st.sampled_from(Period)
calendars = st.builds(Calendar, periods, st.sampled_from(ZONES))
near_changes = st.builds(lambda at, hours: at + timedelta(minutes=15 * hours), st.sampled_from(CHANGES), st.integers(-300, 300))
instants = near_changes | st.datetimes(datetime(1901, 1, 2), datetime(2998, 1, 1), timezones=st.just(timezone.utc))
pairs = st.tuples(calendars, calendars).filter(lambda pair: {pair[0].period, pair[1].period} != {Period.WEEK, Period.MONTH})
places = st.integers(-40, 40) | st.sampled_from((-745, -168, 23, 24, 167, 168, 671, 743, 744))
offsets = st.one_of(
    st.builds(lambda members: Offsets(Form.SET, tuple(sorted(members))), st.sets(places, min_size=1, max_size=5)),
    st.builds(lambda ends: Offsets(Form.INTERVAL, tuple(sorted(ends))), st.tuples(places, places)),
    st.builds(lambda last: Offsets(Form.INTERVAL, (0, last)), st.sampled_from((6, 23, 30, 167, 743))),
    st.builds(lambda last: Offsets(Form.SET, tuple(range(last + 1))), st.sampled_from((6, 23, 30, 167))),
    st.just(Offsets(Form.WHOLE)),
    st.builds(lambda back: Offsets(Form.LAST, (-back,)), st.integers(0, 40)),
)


@st.composite
def times(draw: st.DrawFn, calendar: Calendar) -> BusinessTime:
    """A time of a calendar, most often near a change."""
    return calendar.at(draw(instants))
