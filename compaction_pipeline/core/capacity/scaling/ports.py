"""The port says what the state database remembers of scaling: what groups are to have, what was done for that, and what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord


class ScalingStore(Protocol):
    """What groups with a policy are to have, their actions, and what was seen of them."""

    def scales(self) -> Mapping[str, Scale]:
        """Return what each group is to have, by its name. Groups that were never scaled have none."""

    def change(self, scale: Scale, record: ScalingRecord | None = None) -> bool:
        """Store a scale whose revision is the next one, and the record of the action that changes it, both or neither.

        When the action ends by it, people are told of that.
        Return False and store nothing when another writer was first, and when the group has another open action than this one.
        """

    def observe(self, group: str, seen: Observation) -> None:
        """Store what was seen of a group. What is stored for the same minute already stays."""

    def observations(self, group: str, since: datetime) -> Sequence[Observation]:
        """Return what was seen of a group from this time on, the oldest first."""

    def records(self, group: str | None, most: int) -> Sequence[ScalingRecord]:
        """Return the newest actions, at most `most`, of one group or of all, the newest first."""

    def expire(self, seen_before: datetime, ended_before: datetime) -> None:
        """Forget what was seen and what had ended before these times, and what is stored of groups that no longer exist."""
