"""Predicts the slot-time and the GB-hours of a task from the last attempts on its table and of its type.

An attempt takes a fixed time, for a start and a report, and a time for each byte. Both are fitted to the last attempts by least squares,
and neither is below 0. How far off such predictions are is said beside them: the median, over these attempts, of the factor by which the
time of an attempt differs from what a fit to the others predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    count = len(runs)
    mean_size, mean_time = sum(run.bytes_read for run in runs) / count, sum(run.slot_seconds for run in runs) / count
    spread = sum((run.bytes_read - mean_size) ** 2 for run in runs)
    together = sum((run.bytes_read - mean_size) * (run.slot_seconds - mean_time) for run in runs)
    per_byte = together / spread if spread > 0 else 0.0
    fixed = mean_time - per_byte * mean_size
    if spread <= 0 or fixed < 0:
        # Attempts of one size tell nothing of a fixed part, and a line that cuts the axis below 0 goes through 0.
        squares = sum(run.bytes_read**2 for run in runs)
        through_zero = sum(run.bytes_read * run.slot_seconds for run in runs) / squares if squares else 0.0
        return (0.0, through_zero) if squares else (mean_time, 0.0)
    return (mean_time, 0.0) if per_byte < 0 else (fixed, per_byte)


def _error(runs: Sequence[PastRun]) -> float | None:
    if len(runs) < 3:
        return None
    factors = []
    for number, run in enumerate(runs):
        fixed, per_byte = _line([*runs[:number], *runs[number + 1 :]])
        predicted, took = max(fixed + per_byte * run.bytes_read, _LEAST_SECONDS), max(run.slot_seconds, _LEAST_SECONDS)
        factors.append(max(predicted / took, took / predicted))
    return median(factors)
