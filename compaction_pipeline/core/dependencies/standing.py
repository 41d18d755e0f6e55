"""Remembers since when the watermark of each writer of a table stands where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.watermark import Watermark, WatermarkRule, WatermarkStore, watermarks_of_writers
from compaction_pipeline.core.tables.ready_properties import MOST_STANDING
from compaction_pipeline.core.tables.table import TableIdentifier

NOTED_AGAIN = timedelta(hours=1)
"""Who asks every few seconds has the time of the question stored once an hour."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A watermark that somebody waits for, and since when it is what it is.

    `writer` is its name in 'compaction.watermark-writers'; "" stands for all writers together, where none is named. `at` is None when
    there is no watermark. `asked_at` is when somebody asked last whether a partition of the table is ready. It may stand for at most
    `most`.
    """

    table: TableIdentifier
    writer: str
    at: datetime | None
    since: datetime
    asked_at: datetime
    most: timedelta = MOST_STANDING


def standings(
    table: TableIdentifier,
    stores: Sequence[WatermarkStore],
    rule: WatermarkRule,
    before: Iterable[Standing],
    now: datetime,
    most: timedelta = MOST_STANDING,
) -> tuple[Standing, ...]:
    """Where the watermark of each writer of a table stands now, after what was noted `before`. Raises ConfigError as
    `watermark_of_stores`."""
    known: Mapping[str, Standing] = {one.writer: one for one in before}
    return tuple(
        Standing(table, writer, found.at if found is not None else None, _since(known.get(writer), found, stores, now), now, most)
        for writer, found in watermarks_of_writers(stores, rule).items()
    )


def lowest(found: Iterable[Standing]) -> Standing:
    """The writer that holds up the table: one that says nothing, or else the one with the lowest watermark."""
    return min(found, key=lambda one: (one.at is not None, one.at or one.since, one.since))


def is_news(before: Sequence[Standing], after: Sequence[Standing]) -> bool:
    """Whether `after` must be stored: other writers, one that says a watermark first, is set back or moves after an hour, another time for
    which it may stand, or a question that comes an hour later.

    One that goes on moving is stored once an hour. Until then, since when it stands is told by the snapshot that moved it.
    """
    return [one.writer for one in before] != [one.writer for one in after] or any(map(_has_news, before, after))


def _has_news(old: Standing, new: Standing) -> bool:
    if new.asked_at - old.asked_at >= NOTED_AGAIN or replace(new, at=old.at, since=old.since, asked_at=old.asked_at) != old:
        return True
    if old.at is None or new.at is None or new.at < old.at:
        return new.at != old.at
    # Properties do not tell when they were set.
    return new.at > old.at and (new.asked_at - old.since >= NOTED_AGAIN or new.since == new.asked_at)


def _since(before: Standing | None, found: Watermark | None, stores: Sequence[WatermarkStore], now: datetime) -> datetime:
    """Since when a writer has said this. It moves when a snapshot says more; one that was set back, by a rollback, moved when that is
    seen."""
    if found is None:
        return before.since if before is not None and before.at is None else now
    if before is not None and before.at == found.at:
        return before.since
    if before is not None and before.at is not None and before.at > found.at:
        return now
    made = [snapshot.made_at for store in stores if (snapshot := store.history.snapshots.get(found.snapshot_id or 0)) is not None]
    return min([now, *made])
