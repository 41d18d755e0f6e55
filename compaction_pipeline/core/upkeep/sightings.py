"""Remembers what was seen of a store at each look.

By this the program knows how old a snapshot is at least, and notices when a catalog's pointer was set back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from compaction_pipeline.core.words import time_text

_CLOCKS_DIFFER_MS = 60_000
"""Iceberg's own libraries allow for this difference between the clocks of writers."""
_MOST = 500
"""Sightings of a store that are kept. Older snapshots than those of the oldest sighting go by their own time."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look: when, the last sequence number of the store then, and the time at which its metadata said that it was last changed."""

    at: datetime
    last_sequence_number: int
    last_updated_ms: int


@dataclass(frozen=True, slots=True)
class Sightings:
    """The looks at the store with this uuid, oldest first. Of looks with one sequence number only the newest is kept.

    `metadata_location` is the metadata that the newest look read, and `next_look` the moment at which time alone may make a snapshot old;
    None when it never will.
    """

    table_uuid: str
    looks: tuple[Sighting, ...] = ()
    metadata_location: str = ""
    next_look: datetime | None = None

    def until(self, now: datetime) -> Sightings:
        """Without the looks at a later time."""
        return replace(self, looks=tuple(look for look in self.looks if look.at <= now))

    def absent_at(self) -> Callable[[int], datetime | None]:
        """What tells for the sequence number of a snapshot the newest time at which the store was seen without it; None if it never was."""
        looks = sorted(self.looks, key=lambda look: look.at, reverse=True)
        return lambda number: next((look.at for look in looks if look.last_sequence_number < number), None)

    def set_back(self, last_sequence_number: int, last_updated_ms: int) -> str | None:
        """Say why loaded metadata is older than what was seen before; None when it is not.

        Somebody then restored the catalog's database or registered old metadata. Files that newer metadata names are garbage by the old
        one, but people may want them back.
        """
        newest = self.looks[-1] if self.looks else None
        if newest is None or not _is_older(last_sequence_number, last_updated_ms, newest):
            return None
        return (
            f"its metadata is older than what was seen at {time_text(newest.at)} UTC: its last sequence number is "
            f"{last_sequence_number}, then it was {newest.last_sequence_number}. Somebody has set the catalog's pointer back; when that "
            "was intended, forget what was seen with `compaction-pipeline maintain expire TABLE --accept-older-metadata`"
        )


def _is_older(last_sequence_number: int, last_updated_ms: int, newest: Sighting) -> bool:
    """Sequence numbers tell it. Tables of format v1 have none, and go by the time of the last change; hosts may differ a little in that."""
    if last_sequence_number or newest.last_sequence_number:
        return last_sequence_number < newest.last_sequence_number
    return last_updated_ms + _CLOCKS_DIFFER_MS < newest.last_updated_ms


def seen(before: Sightings, look: Sighting, metadata_location: str, next_look: datetime | None) -> Sightings:
    """Return the sightings after one more look at the same store."""
    # Of the looks with one sequence number the newest tells most.
    looks = tuple(one for one in before.looks if one.last_sequence_number < look.last_sequence_number)
    return Sightings(before.table_uuid, (*looks, look)[-_MOST:], metadata_location, next_look)
