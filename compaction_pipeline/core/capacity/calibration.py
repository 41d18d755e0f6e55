"""Predicts the slot-time, the GB-hours and the written bytes of a task from the last attempts on its table and of its type.

An attempt takes a fixed time, for a start and a report, and a time for each byte. Both are fitted to the last attempts by medians, because
one that began while Spark started, or while a machine was busy, took many times as long, and tells nothing of the next. Neither is below
0. A newer attempt counts more than an older one, because tables and machines change. How far off such predictions are is said beside them:
the median, over these attempts, of the factor by which the time of an attempt differs from what a fit to the others predicts.

A plan expects the bytes of the rows that no delete deletes. It cannot know how well these compress together, nor how many of the rows that
deletes name were there. So what is predicted is that number times the share of it that the last attempts wrote, in their median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

RUNS = 20
"""So many attempts are looked at, the newest ones."""
_HALF_LIFE = 5
"""So many attempts later, one counts half."""
_LEAST_SECONDS = 0.001
_MOST_BYTES = 2**60
"""No task is predicted to write more, because nothing could store a larger number."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """An attempt that merged its task: the bytes that it read, the seconds that it held its slot, and the GB-hours of that; None when the
    memory of the slot is not known. `bytes_written` are those of its files, and `expected_bytes` what its plan expected these to be,
    without a look at past attempts; None when that was not noted."""

    bytes_read: int
    slot_seconds: float
    gb_hours: float | None = None
    bytes_written: int | None = None
    expected_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """What a task of so many bytes takes: `fixed` seconds, and `per_byte` for each byte. `gb` is the reserve of a slot in GB.

    `error` is the median of the factor, from 1, by which the time of a past attempt differs from what the others predict; None for fewer
    than three attempts. `runs` is how many attempts it was fitted to. `kept` is the share of its expected bytes that an attempt writes.
    """

    fixed: float
    per_byte: float
    gb: float | None
    error: float | None
    runs: int
    kept: float = 1.0

    def size(self, expected_bytes: int) -> int:
        """The predicted bytes that a task writes, of which its plan expects so many."""
        return min(round(self.kept * expected_bytes), _MOST_BYTES)

    def seconds(self, size: int) -> float:
        """The predicted seconds of a task that reads so many bytes."""
        return max(self.fixed + self.per_byte * size, _LEAST_SECONDS)

    def gb_hours(self, size: int) -> float | None:
        """The predicted GB-hours; None while no reserve is known."""
        return None if self.gb is None else self.gb * self.seconds(size) / 3600


def fit(runs: Sequence[PastRun]) -> Fit | None:
    """Fit the last attempts, the newest first. None when there are none."""
    if not runs:
        return None
    fixed, per_byte = _line(runs)
    reserves = [run.gb_hours * 3600 / run.slot_seconds for run in runs if run.gb_hours is not None and run.slot_seconds > 0]
    sizes = [
        (run.bytes_written / run.expected_bytes, _age_weight(age))
        for age, run in enumerate(runs)
        if run.bytes_written is not None and run.expected_bytes
    ]
    kept = _weighted_median(sizes) if sizes else 1.0
    return Fit(fixed, per_byte, median(reserves) if reserves else None, _error(runs), len(runs), kept)


def _line(runs: Sequence[PastRun]) -> tuple[float, float]:
    """The weighted median of the slopes between all pairs, and the weighted median of what then remains (Theil, Sen and Sievers)."""
    ages = [_age_weight(age) for age in range(len(runs))]
    # Between two attempts of nearly one size the slope is mostly noise, so a pair counts by how far its sizes are apart.
    slopes = [
        (
            (one.slot_seconds - other.slot_seconds) / (one.bytes_read - other.bytes_read),
            weight * of_other * abs(one.bytes_read - other.bytes_read),
        )
        for (one, weight), (other, of_other) in combinations(zip(runs, ages, strict=True), 2)
        if one.bytes_read != other.bytes_read
    ]
    per_byte = _weighted_median(slopes) if slopes else 0.0
    if per_byte < 0:
        return _weighted_median([(run.slot_seconds, weight) for run, weight in zip(runs, ages, strict=True)]), 0.0
    fixed = _weighted_median([(run.slot_seconds - per_byte * run.bytes_read, weight) for run, weight in zip(runs, ages, strict=True)])
    if slopes and fixed >= 0:
        return fixed, per_byte
    # Attempts of one size tell nothing of a fixed part, and a line that cuts the axis below 0 goes through 0.
    rates = [(run.slot_seconds / run.bytes_read, weight * run.bytes_read) for run, weight in zip(runs, ages, strict=True) if run.bytes_read]
    return (0.0, _weighted_median(rates)) if rates else (fixed, 0.0)


def _age_weight(age: int) -> float:
    return float(0.5 ** (age / _HALF_LIFE))


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """The value in the middle of the weight. Each is given with its weight, which is above 0. Between two values it is interpolated."""
    ordered = sorted(values)
    half, so_far = sum(weight for _, weight in ordered) / 2, 0.0
    before: tuple[float, float] | None = None
    for value, weight in ordered:
        middle = so_far + weight / 2
        if middle >= half:
            return value if before is None else before[0] + (half - before[1]) / (middle - before[1]) * (value - before[0])
        so_far, before = so_far + weight, (value, middle)
    return ordered[-1][0]


def _error(runs: Sequence[PastRun]) -> float | None:
    if len(runs) < 3:
        return None
    factors = []
    for number, run in enumerate(runs):
        fixed, per_byte = _line([*runs[:number], *runs[number + 1 :]])
        predicted, took = max(fixed + per_byte * run.bytes_read, _LEAST_SECONDS), max(run.slot_seconds, _LEAST_SECONDS)
        factors.append(max(predicted / took, took / predicted))
    return median(factors)
