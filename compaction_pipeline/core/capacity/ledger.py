"""Says what one attempt of a task costs, and on which days.

An attempt is charged from its claim to its end, whatever its end is. It holds one slot of its worker for that time, and with it a part of
the memory that the worker has reserved. Rows are split by UTC days, in proportion to time. What a worker says of itself is cut at what it
can have used at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone

from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.work import Work

KEPT_DAYS = 35
"""Rows of single attempts are kept for so many days. Sums of a day and a team are kept for SUMS_KEPT_DAYS."""
SUMS_KEPT_DAYS = 400
MOST_CORES = 4096
"""A worker may say that it has so many cores. One that does not say how many is believed to have no more."""
MOST_BYTES = 2**60
"""No attempt used, read or wrote more than this. A database could not store what a broken worker or manifest may name."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one slot of a worker has: `reserve_bytes` of memory, None when unknown, and at most `cores`, None when unknown.

    `cores` are those of the whole worker, because a merge may use all of them while the other slots are idle.
    """

    reserve_bytes: int | None = None
    cores: float | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What an attempt has used. None is unknown.

    CPU times are seconds of the worker's process (`MergeResult.cpu_ms`). The bytes are those of the files that the attempt read and wrote:
    the server knows them from the task and from the files. `is_cut` says that the worker told more than is possible.
    """

    cpu_seconds: float | None = None
    overhead_cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    is_cut: bool = False

    def or_so_far(self, told: Used | None) -> Used:
        """The same, with the CPU and the memory that were told while the attempt ran where its end tells none."""
        if told is None or None not in (self.cpu_seconds, self.peak_memory_bytes):
            return self
        cpu = told.cpu_seconds if self.cpu_seconds is None else self.cpu_seconds
        peak = told.peak_memory_bytes if self.peak_memory_bytes is None else self.peak_memory_bytes
        return replace(self, cpu_seconds=cpu, peak_memory_bytes=peak, is_cut=self.is_cut or told.is_cut)


UNKNOWN = Used()


@dataclass(frozen=True, slots=True)
class Charge:
    """What an attempt costs on one UTC day."""

    day: date
    slot_seconds: float
    used: Used


def used_by(work: Work, result: MergeResult | None) -> Used:
    """What an attempt used, as its result says. The bytes of an attempt that did not merge are unknown."""
    if result is None or result.error is not None:
        return UNKNOWN if result is None else told_by(result)
    written = sum(output.file_size_bytes for output in result.outputs)
    return replace(told_by(result), bytes_read=min(work.bytes_read, MOST_BYTES), bytes_written=min(written, MOST_BYTES))


def told_by(result: MergeResult) -> Used:
    """The CPU and the memory of an attempt, as its worker tells them."""
    # A worker of an earlier release, or one whose Spark failed, tells no memory, which reads as 0.
    return Used(_seconds(result.cpu_ms), _seconds(result.overhead_cpu_ms), result.peak_memory_bytes or None)


def used_until_now(told: UsedSoFar, before: Used | None, share: Share, held: timedelta) -> Used:
    """What an attempt that still runs has used, `before` being what it told before.

    Both figures only grow, so one that arrives late changes nothing. `held` is the time since its claim.
    """
    new = believable(Used(_seconds(told.cpu_ms), None, told.peak_memory_bytes), share, held, timedelta(0))
    if before is None:
        return new
    cpu = max(new.cpu_seconds or 0.0, before.cpu_seconds or 0.0)
    peak = max(new.peak_memory_bytes or 0, before.peak_memory_bytes or 0)
    return Used(cpu, None, peak, is_cut=new.is_cut or before.is_cut)


def _seconds(milliseconds: int | None) -> float | None:
    """The seconds that a worker tells. It may tell a number that no float can hold."""
    return None if milliseconds is None else max(-1, min(milliseconds, MOST_BYTES)) / 1000


def believable(used: Used, share: Share, held: timedelta, lived: timedelta) -> Used:
    """What can be true of it: a worker uses no more CPU than its cores have, and no more memory than it reserved.

    `held` is the time from the claim of the attempt to its report, and `lived` how long the worker was there when it told this.
    """
    cores = MOST_CORES if share.cores is None else share.cores
    cut = replace(
        used,
        cpu_seconds=_between(used.cpu_seconds, cores * max(held.total_seconds(), 0.0)),
        overhead_cpu_seconds=_between(used.overhead_cpu_seconds, cores * max(lived.total_seconds(), 0.0)),
        peak_memory_bytes=_whole(_between(used.peak_memory_bytes, MOST_BYTES if share.reserve_bytes is None else share.reserve_bytes)),
    )
    return cut if cut == used else replace(cut, is_cut=True)


def _between(value: float | None, most: float | None) -> float | None:
    if value is None:
        return None
    return max(0, value if most is None else min(value, most))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def days_between(begun: datetime, ended: datetime) -> Mapping[date, float]:
    """The seconds from `begun` to `ended` by UTC day. Both are aware. The day of the beginning is there even when nothing passed."""
    begun = begun.astimezone(timezone.utc)
    ended = max(ended.astimezone(timezone.utc), begun)
    found: dict[date, float] = {}
    while True:
        midnight = datetime.combine(begun.date() + timedelta(days=1), time(), timezone.utc)
        until = min(midnight, ended)
        if until > begun or not found:
            found[begun.date()] = (until - begun).total_seconds()
        if ended <= midnight:
            return found
        begun = midnight


def charges(begun: datetime, ended: datetime, used: Used) -> tuple[Charge, ...]:
    """What an attempt costs that held its slot from `begun` to `ended`, by day. Peak memory is that of each day."""
    days = days_between(begun, ended)
    parts = shares_of(list(days.values()))
    return tuple(
        Charge(day, seconds, part_of(used, part, is_last=number == len(days) - 1, parts=parts))
        for number, ((day, seconds), part) in enumerate(zip(days.items(), parts, strict=True))
    )


def shares_of(seconds: list[float]) -> list[float]:
    """Which part of the whole each of these times is. When nothing passed, all of it belongs to the first."""
    whole = sum(seconds)
    return [each / whole for each in seconds] if whole > 0 else [1.0, *[0.0] * (len(seconds) - 1)]


def part_of(used: Used, part: float, *, is_last: bool, parts: list[float]) -> Used:
    """The part of what was used that falls on one day. Whole bytes are not lost: the last day takes what rounding left."""

    def share(value: int | None) -> int | None:
        if value is None:
            return None
        return value - sum(int(value * each) for each in parts[:-1]) if is_last else int(value * part)

    return replace(
        used,
        cpu_seconds=None if used.cpu_seconds is None else used.cpu_seconds * part,
        overhead_cpu_seconds=None if used.overhead_cpu_seconds is None else used.overhead_cpu_seconds * part,
        bytes_read=share(used.bytes_read),
        bytes_written=share(used.bytes_written),
    )


def gb_hours(reserve_bytes: int, seconds: float) -> float:
    """The GB-hours of so much reserved memory for so long. A GB is 10⁹ bytes, as in every size that people read here."""
    return reserve_bytes / 10**9 * seconds / 3600
