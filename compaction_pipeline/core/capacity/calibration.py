"""Predicts the slot-time and the GB-hours of a task from the last attempts on its table and of its type.

An attempt takes a fixed time, for a start and a report, and a time for each byte. Both are fitted to the last attempts by medians, because
one that began while Spark started, or while a machine was busy, took many times as long, and tells nothing of the next. Neither is below
0. How far off such predictions are is said beside them: the median, over these attempts, of the factor by which the time of an attempt
differs from what a fit to the others predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

RUNS = 20
"""So many attempts are looked at, the newest ones."""
_LEAST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class PastRun:
    """An attempt that merged its task: the bytes that it read, the seconds that it held its slot, and the GB-hours of that; None when the
    memory of the slot is not known."""

    bytes_read: int
    slot_seconds: float
    gb_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """What a task of so many bytes takes: `fixed` seconds, and `per_byte` for each byte. `gb` is the reserve of a slot in GB.

    `error` is the median of the factor, from 1, by which the time of a past attempt differs from what the others predict; None for fewer
    than three attempts. `runs` is how many attempts it was fitted to.
    """

    fixed: float
    per_byte: float
    gb: float | None
    error: float | None
    runs: int

    def seconds(self, size: int) -> float:
        """The predicted seconds of a task that reads so many bytes."""
        return max(self.fixed + self.per_byte * size, _LEAST_SECONDS)

    def gb_hours(self, size: int) -> float | None:
        """The predicted GB-hours; None while no reserve is known."""
        return None if self.gb is None else self.gb * self.seconds(size) / 3600


def fit(runs: Sequence[PastRun]) -> Fit | None:
    """Fit the last attempts. None when there are none."""
    if not runs:
        return None
    fixed, per_byte = _line(runs)
    reserves = [run.gb_hours * 3600 / run.slot_seconds for run in runs if run.gb_hours is not None and run.slot_seconds > 0]
    return Fit(fixed, per_byte, median(reserves) if reserves else None, _error(runs), len(runs))


def _line(runs: Sequence[PastRun]) -> tuple[float, float]:
    """The median of the slopes between all pairs, and the median of what then remains (Theil and Sen)."""
    pairs = [(one, other) for one, other in combinations(runs, 2) if one.bytes_read != other.bytes_read]
    per_byte = (
        median((one.slot_seconds - other.slot_seconds) / (one.bytes_read - other.bytes_read) for one, other in pairs) if pairs else 0.0
    )
    if per_byte < 0:
        return median(run.slot_seconds for run in runs), 0.0
    fixed = median(run.slot_seconds - per_byte * run.bytes_read for run in runs)
    if pairs and fixed >= 0:
        return fixed, per_byte
    # Attempts of one size tell nothing of a fixed part, and a line that cuts the axis below 0 goes through 0.
    rates = [run.slot_seconds / run.bytes_read for run in runs if run.bytes_read]
    return (0.0, median(rates)) if rates else (median(run.slot_seconds for run in runs), 0.0)


def _error(runs: Sequence[PastRun]) -> float | None:
    if len(runs) < 3:
        return None
    factors = []
    for number, run in enumerate(runs):
        fixed, per_byte = _line([*runs[:number], *runs[number + 1 :]])
        predicted, took = max(fixed + per_byte * run.bytes_read, _LEAST_SECONDS), max(run.slot_seconds, _LEAST_SECONDS)
        factors.append(max(predicted / took, took / predicted))
    return median(factors)
