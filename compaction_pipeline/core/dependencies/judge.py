"""Decides whether what is asked for is ready, by each of the rules of `compaction.ready-when`, and says why in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.asked import Asked, Calendar, Placed
from compaction_pipeline.core.dependencies.readiness import ChangedSince
from compaction_pipeline.core.dependencies.ready_time import Window, instant_text
from compaction_pipeline.core.dependencies.ready_when import Exists, Quiet
from compaction_pipeline.core.dependencies.watermark import Watermark, too_early
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.tables.ready_properties import READY_TIME_KEY, READY_WHEN_KEY
from compaction_pipeline.core.words import duration_text


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """What the readings of manifests found out about one partition: its live files, and the last snapshot that added some and is no
    REPLACE; None when only compactions are known to have added files to it. `added_at` is the latest time that such snapshots have: the
    clocks of writers differ."""

    spec_id: int
    partition: Partition
    files: int
    added_at: datetime | None = None
    added_by: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is ready, and why. `added_at` is when files were added last to what is asked for, where the rule looks at files."""

    ready: bool
    why: str
    added_at: datetime | None = None


def by_watermark(asked: Asked, watermark: Watermark | None, keys: Iterable[str]) -> Verdict:
    """Whether the watermark has reached the end of every partition that is asked for. Empty partitions are ready then, too.

    `keys` are those under which a watermark is looked for. Raises ConfigError when what is asked for has no time.
    """
    until = end_of(asked)
    end = f"the end is {instant_text(until)}"
    if asked.window is not None and until > asked.window.end:
        end = f"the last partition that overlaps it ends at {instant_text(until)}"
    if watermark is None:
        return Verdict(
            False,
            f"the table has no watermark: no writer says one under {' or '.join(keys)}, and {end}; let a writer say one, or choose another "
            f"rule in '{READY_WHEN_KEY}'",
        )
    said = f"the watermark is {_second(watermark.at)} ({_where(watermark)})"
    if watermark.at >= until:
        return Verdict(True, f"{said}, and {end}")
    warning = too_early(watermark)
    return Verdict(False, f"{said}, but {end}, {duration_text(until - watermark.at)} later{f'; {warning}' if warning is not None else ''}")


def end_of(asked: Asked) -> datetime:
    """The time that a watermark must reach for what is asked for. Raises ConfigError when it has no time."""
    if asked.until is None:
        raise ConfigError(
            f"{asked.what} has no time that a watermark could reach: name a partition field that tells one, set '{READY_TIME_KEY}', or "
            f"choose another rule in '{READY_WHEN_KEY}'"
        )
    return asked.until


def by_files(asked: Asked, calendar: Calendar, partitions: Iterable[KnownPartition], rule: Quiet | Exists, now: datetime) -> Verdict:
    """Whether partitions with files fill what is asked for and, under `quiet`, none of them got files for as long as the rule says.

    Files whose partition has no time, or lacks a field that is asked for, may hold rows of any time, or of any value: they must be quiet
    too, but fill nothing.
    """
    live = ((one, calendar.placed(one.spec_id, one.partition)) for one in partitions if one.files > 0)
    found = [(one, placed) for one, placed in live if _is_asked(asked, placed)]
    times = [one.added_at for one, _ in found if one.added_at is not None]
    newest = max(times, default=None)
    own = (placed for _, placed in found if asked.is_filled_by(placed.values))
    filling = [placed.window for placed in own if placed.window is not None or asked.window is None]
    why = _gap_in_words(asked, filling, "has files")
    if why is not None:
        return Verdict(False, why, newest)
    if isinstance(rule, Exists):
        return Verdict(True, "it has files, which does not say that its data is complete", newest)
    timed = [(one.added_at, one.added_by, placed) for one, placed in found if one.added_at is not None]
    loud = [each for each in timed if now - each[0] < rule.duration]
    if not loud:
        if newest is None:
            return Verdict(True, "only compactions added files to it")
        return Verdict(True, f"no snapshot has added files to it since {_second(newest)}", newest)
    added_at, added_by, placed = max(loud, key=lambda each: each[0])
    return Verdict(
        False,
        f"snapshot {added_by} added files to {placed.path or 'the table'} at {_second(added_at)}; it is ready when no other does "
        f"until {_second(added_at + rule.duration)}",
        newest,
    )


def by_names(asked: Asked, named: Sequence[Asked], verb: str, otherwise: str) -> Verdict:
    """Whether partitions that somebody calls ready fill what is asked for. One that names fewer fields stands for all that it includes.

    `verb` says what was done with them (`reported`), and `otherwise` is the sentence for nothing.
    """
    found = [one for one in named if one.values <= asked.values and (asked.window is not None or one.window is None)]
    if any(one.window is None for one in found):
        return Verdict(True, f"it is {verb}")
    why = _gap_in_words(asked, [one.window for one in found if one.window is not None], f"is {verb}")
    if why is None:
        return Verdict(True, f"it is {verb}")
    return Verdict(False, why if found else otherwise)


def changed_since(
    asked: Asked, calendar: Calendar, partitions: Iterable[KnownPartition], newer: Collection[int]
) -> tuple[ChangedSince, ...]:
    """The partitions of what is asked for to which one of these snapshots added files. It withdraws nothing, and is told."""
    found = []
    for one in partitions:
        placed = calendar.placed(one.spec_id, one.partition)
        if one.added_at is not None and one.added_by is not None and one.added_by in newer and _is_asked(asked, placed):
            found.append(ChangedSince(placed.path, one.added_by, one.added_at))
    return tuple(sorted(found, key=lambda each: each.partition))


def fills(window: Window, parts: Iterable[Window]) -> datetime | None:
    """The first instant of a window that lies in none of these windows; None when they fill it. An empty window is never filled."""
    reached = window.start
    for part in sorted(parts, key=lambda each: each.start):
        if part.start > reached:
            break
        reached = max(reached, part.end)
    return None if reached >= window.end and not window.is_empty else reached


def longer_quiet(gap: timedelta) -> timedelta:
    """A duration of `quiet` that is longer than a gap: the next whole hour, or the next minute where the gap is shorter than an hour."""
    unit = timedelta(hours=1) if gap >= timedelta(hours=1) else timedelta(minutes=1)
    return (gap // unit + 1) * unit


def _is_asked(asked: Asked, placed: Placed) -> bool:
    if not asked.includes(placed.values):
        return False
    if asked.window is None or not placed.has_time:
        return True
    return placed.window is not None and placed.window.overlaps(asked.window)


def _gap_in_words(asked: Asked, parts: Sequence[Window | None], verb: str) -> str | None:
    """Why what is asked for is not filled; None when it is."""
    if asked.window is None:
        return None if parts else f"nothing of it {verb}"
    gap = fills(asked.window, [part for part in parts if part is not None])
    if gap is None:
        return None
    return f"nothing of it {verb}" if gap == asked.window.start else f"nothing {verb} from {instant_text(gap)} on"


def _second(at: datetime) -> str:
    """An instant for a sentence. It is cut off, so a watermark never seems to have reached what it has not."""
    return instant_text(at.replace(microsecond=0))


def _where(watermark: Watermark) -> str:
    return f"{watermark.key} of snapshot {watermark.snapshot_id}" if watermark.snapshot_id is not None else watermark.key
