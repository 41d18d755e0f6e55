"""The history of one Iceberg table: its snapshots and refs, as its metadata states them. What may expire is decided from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

MAIN = "main"
"""The branch that readers and writers use when they name none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. `made_at` is the time that its writer wrote into it.

    `absent_at` is the newest time at which this program saw the table without this snapshot; None when it was there at the first look.
    `summary` has the operation too. `sequence_number` is 0 in tables of format v1, which have none.
    """

    snapshot_id: int
    parent_id: int | None
    made_at: datetime
    summary: Mapping[str, str] = field(default_factory=dict)
    sequence_number: int = 0
    absent_at: datetime | None = None

    @property
    def since(self) -> datetime:
        """The time from which its age counts. A writer's clock may be late, and then the time at which we did not see it yet counts."""
        return max(self.made_at, self.absent_at) if self.absent_at is not None else self.made_at


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag. What it does not say itself is None, and is then said by the properties of the table."""

    name: str
    snapshot_id: int
    is_branch: bool
    min_to_keep: int | None = None
    max_snapshot_age: timedelta | None = None
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots by id, and the refs by name."""

    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, Ref]

    def ancestry(self, snapshot_id: int) -> Iterator[Snapshot]:
        """The snapshot, its parent, and so on, as far as metadata still has them. Damaged metadata may have a ring; it is walked once."""
        return self._walk(snapshot_id, set())

    def with_absences(self, absent_at: Callable[[int], datetime | None]) -> History:
        """The same history, and of each snapshot the newest time at which the table was seen without it, by its sequence number."""
        known = {
            snapshot_id: replace(one, absent_at=absent_at(one.sequence_number)) if one.sequence_number else one
            for snapshot_id, one in self.snapshots.items()
        }
        return History(known, self.refs)

    def reached(self, heads: Iterable[int]) -> frozenset[int]:
        """The ids of the snapshots in the ancestry of any of these."""
        seen = set[int]()
        for head in heads:
            deque(self._walk(head, seen), maxlen=0)
        return frozenset(seen)

    def _walk(self, snapshot_id: int, seen: set[int]) -> Iterator[Snapshot]:
        current: int | None = snapshot_id
        while current is not None and current not in seen and current in self.snapshots:
            seen.add(current)
            snapshot = self.snapshots[current]
            yield snapshot
            current = snapshot.parent_id
