"""How the times of one period lie in those of another: hours in all by instant, days in weeks and months by label."""

from __future__ import annotations

from compaction_pipeline.core.dependencies.center.periods import Calendar, Period, first_day, number_of_day
from compaction_pipeline.core.errors import ConfigError

_HOUR = 3600
_FINER = {
    (Period.HOUR, Period.DAY),
    (Period.HOUR, Period.WEEK),
    (Period.HOUR, Period.MONTH),
    (Period.DAY, Period.WEEK),
    (Period.DAY, Period.MONTH),
}
_CROSSING = {(Period.WEEK, Period.MONTH), (Period.MONTH, Period.WEEK)}


def is_finer(period: Period, than: Period) -> bool:
    """Whether one period lies in the other. Raises ConfigError for weeks and months, which lie in each other in part."""
    pair = (period, than)
    if pair in _CROSSING:
        raise ConfigError("a WEEK cannot depend on a MONTH, nor a MONTH on a WEEK, because weeks lie in two months: depend on days instead")
    return pair in _FINER


def inside(coarse: Calendar, fine: Calendar, number: int) -> tuple[int, int]:
    """The numbers of the first and the last finer time that starts in a coarser one. The last is below the first when there is none."""
    if fine.period is Period.HOUR:
        return -(-coarse.opens(number) // _HOUR), -(-coarse.opens(number + 1) // _HOUR) - 1
    return first_day(coarse.period, number), first_day(coarse.period, number + 1) - 1


def holder(fine: Calendar, coarse: Calendar, number: int) -> int:
    """The number of the coarser time in which a finer one starts."""
    if fine.period is Period.HOUR:
        return coarse.number_at(number * _HOUR)
    return number_of_day(coarse.period, number)
