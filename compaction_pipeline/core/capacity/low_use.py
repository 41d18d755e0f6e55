"""Judges how well an optimizer is used, and says what would use it better.

Three shares count over a window of time: CPU of the cores, memory of the reserve, and idle time of the slots. The score is 100 less the
worst shortfall in per cent: an optimizer whose slots were all idle has 0. A share that nobody knows is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil

from compaction_pipeline.core.words import bytes_text, count_text, duration_text

GOOD_SCORE = 50
"""An optimizer with fewer points counts as one of low use."""
_KNOWN = 0.9
"""CPU is judged when the attempts that told theirs took at least this part of the time of all attempts."""
_COMPUTES = 0.3
"""Slots that use at least this part of a core while they are busy compute. They do not wait for storage, so more of them would not help.
Merges without any wait were measured at 0.45 on a busy host, because an attempt also waits for its server and for other processes."""
_HEADROOM = 1.25
"""A smaller reserve leaves this much more than the highest peak."""
_PROCESSES_BYTES, _WORKER_BYTES = 1_500_000_000, 300_000_000
"""What an optimizer needs beside its merges: Python and Spark's driver, and a Python worker for each slot. The peak of an attempt is what
its merge added to the process, so these are not in it."""
_ROUND_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class LowUseLimits:
    """Below these shares of CPU and memory, and above this share of idle time, use is low. Shares are from 0 to 1.

    An optimizer is judged once it has lived for `window`.
    """

    window: timedelta = timedelta(minutes=30)
    cpu: float = 0.2
    memory: float = 0.5
    idle: float = 0.25


@dataclass(frozen=True, slots=True)
class SlotUse:
    """What an optimizer did in the window.

    `busy_seconds` is the time of its attempts over all slots; those that still run are in it. `told_seconds` is the part of attempts that
    have told their CPU, and `cpu_seconds` that CPU. `peak_memory_bytes` is the highest of one attempt; None when none told it.
    """

    busy_seconds: float = 0.0
    told_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int | None = None

    def plus(self, more: SlotUse) -> SlotUse:
        """What two optimizers did together."""
        peaks = [each for each in (self.peak_memory_bytes, more.peak_memory_bytes) if each is not None]
        return SlotUse(
            self.busy_seconds + more.busy_seconds,
            self.told_seconds + more.told_seconds,
            self.cpu_seconds + more.cpu_seconds,
            max(peaks, default=None),
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How large an optimizer is: its slots, the memory that is reserved for it (0 when unknown), and its cores (None when unknown)."""

    slots: int
    memory_bytes: int
    cores: float | None

    @property
    def slot_bytes(self) -> int:
        """The memory of one slot."""
        return self.memory_bytes // self.slots


@dataclass(frozen=True, slots=True)
class Use:
    """How well an optimizer was used. `reasons` say what is low, the worst first. `better` is a size that would be used better.

    With neither, all that is known is well used. `ends` says that no slot was used, so it need not run at all.
    """

    score: int
    reasons: tuple[str, ...] = ()
    remedy: str = ""
    better: Size | None = None
    ends: bool = False

    @property
    def is_low(self) -> bool:
        """Whether it counts as one of low use."""
        return self.score < GOOD_SCORE


def use_of(size: Size, used: SlotUse, limits: LowUseLimits, on_cores: SlotUse | None = None) -> Use:
    """Judge an optimizer of this size that has lived for the whole window.

    `on_cores` is what all optimizers did that share its cores, itself included; None when it shares them with none. Cores that another
    one uses are well used.
    """
    cpu = _low_cpu(size, used, used if on_cores is None else on_cores, limits)
    short = sorted(_shortfalls(size, used, cpu, limits), reverse=True)
    score = 100 - (round(100 * short[0][0]) if short else 0)
    reasons = tuple(text for _, text in short)
    if not short:
        return Use(score)
    return _with_remedy(Use(score, reasons), size, used, limits, waits=cpu is not None)


def _shortfalls(size: Size, used: SlotUse, cpu: float | None, limits: LowUseLimits) -> Iterator[tuple[float, str]]:
    idle = _idle(size, used, limits)
    if idle > limits.idle:
        slots = idle * size.slots
        how_many = f"{slots:.1f} of {count_text(size.slots, 'slot')}".replace(".0 of", " of")
        yield (idle - limits.idle) / (1 - limits.idle), f"{how_many} idle for {duration_text(limits.window)} on average"
    if cpu is not None:
        yield 1 - cpu / limits.cpu, f"{cpu:.0%} of {size.cores:g} cores used"
    memory = memory_share(size, used)
    if memory is not None and memory < limits.memory:
        yield 1 - memory / limits.memory, f"{memory:.0%} of {bytes_text(size.memory_bytes)} of memory used at the peak"


def _idle(size: Size, used: SlotUse, limits: LowUseLimits) -> float:
    return min(max(1 - used.busy_seconds / (size.slots * limits.window.total_seconds()), 0.0), 1.0)


def _low_cpu(size: Size, used: SlotUse, on_cores: SlotUse, limits: LowUseLimits) -> float | None:
    """The part of its cores that was used, when that is low because its slots wait. None when it is not low, or when nobody knows it."""
    if size.cores is None or any(each.told_seconds < _KNOWN * each.busy_seconds for each in (used, on_cores)):
        return None
    if used.told_seconds > 0 and used.cpu_seconds >= _COMPUTES * used.told_seconds:
        return None
    share = on_cores.cpu_seconds / (size.cores * limits.window.total_seconds())
    return share if share < limits.cpu else None


def memory_share(size: Size, used: SlotUse) -> float | None:
    """Return the part of its reserve that an optimizer needs at the highest peak. None when nobody knows it."""
    needed = _needed(size, used)
    return None if needed is None or not size.memory_bytes else needed / size.memory_bytes


def _needed(size: Size, used: SlotUse, headroom: float = 1.0) -> float | None:
    """The memory that all slots need at the highest peak, with the processes themselves; None when no attempt told its peak."""
    if used.peak_memory_bytes is None:
        return None
    return _PROCESSES_BYTES + size.slots * (_WORKER_BYTES + used.peak_memory_bytes * headroom)


def _with_remedy(use: Use, size: Size, used: SlotUse, limits: LowUseLimits, *, waits: bool) -> Use:
    """The first rule that fits: idle slots go, slots that wait for storage become more, and memory that nobody uses goes."""
    idle = _idle(size, used, limits)
    if used.busy_seconds <= 0:
        saved = f", which saves {bytes_text(size.memory_bytes)}" if size.memory_bytes else ""
        return _with(use, f"no task came: it need not run{saved}", None, ends=True)
    if idle > limits.idle and size.slots > 1:
        # A twentieth of a slot is measuring error.
        slots = max(1, ceil((1 - idle) * size.slots - 0.05))
        if slots < size.slots:
            better = _with_slots(size, slots, used)
            less = size.memory_bytes - better.memory_bytes
            return _with(use, f"parallelism {slots} saves {bytes_text(less)}" if less else f"parallelism {slots} is enough", better)
    if waits and idle <= limits.idle:
        slots = size.slots * 2
        better = _with_slots(size, slots, used)
        more = f", with {bytes_text(better.memory_bytes)} of memory" if size.memory_bytes else ""
        return _with(use, f"its slots wait for storage: parallelism {slots} uses the cores better{more}", better)
    memory, needed = memory_share(size, used), _needed(size, used, _HEADROOM)
    if memory is not None and memory < limits.memory and needed is not None:
        wanted = _rounded(needed)
        if wanted < size.memory_bytes:
            return _with(use, f"memory {bytes_text(wanted)} is enough", Size(size.slots, wanted, size.cores))
    return _with(use, "a group with fewer optimizers has fewer idle slots" if idle > limits.idle else "", None)


def _with_slots(size: Size, slots: int, used: SlotUse) -> Size:
    """The size with another number of slots. Its memory goes with them, but the processes themselves need theirs in any case."""
    if not size.memory_bytes:
        return Size(slots, 0, size.cores)
    in_proportion = size.slot_bytes * slots
    known = used if used.peak_memory_bytes is not None else replace(used, peak_memory_bytes=0)
    least = _rounded(_needed(Size(slots, 0, size.cores), known, _HEADROOM) or 0.0)
    if slots < size.slots:
        return Size(slots, min(size.memory_bytes, max(in_proportion, least)), size.cores)
    # Without a peak nobody knows what more slots need.
    wanted = in_proportion if used.peak_memory_bytes is None else min(in_proportion, least)
    return Size(slots, max(size.memory_bytes, wanted), size.cores)


def _rounded(memory: float) -> int:
    return ceil(memory / _ROUND_BYTES) * _ROUND_BYTES


def _with(use: Use, remedy: str, better: Size | None, *, ends: bool = False) -> Use:
    return Use(use.score, use.reasons, remedy, better, ends)
