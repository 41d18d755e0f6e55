"""A group in a test: observations of its minutes, and a load that always asks for the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.capacity.scaling.action import Action, Direction, Hold, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy
from compaction_pipeline.core.capacity.scaling.target import Target

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
POLICY = ScalingPolicy(Bounds(1, 64), step=4)
CALM = Observation(NOON, 0, timedelta(0), 0, 4, idle_share=1.0, ended=0, up=4)
BEHIND = Observation(NOON, 20, timedelta(minutes=3), 4, 4, idle_share=0.0, up=4)


def minutes(seen: Observation, count: int, until: datetime = NOON) -> list[Observation]:
    """The same for so many minutes, the last of which ends at `until`."""
    return [replace(seen, at=until - number * MINUTE) for number in reversed(range(count))]


def past(action: Action, ago: timedelta, outcome: Outcome | None = Outcome.DONE, policy: ScalingPolicy = POLICY) -> PastAction:
    """An action that was decided so long before noon, and closed at once."""
    return PastAction(action, NOON - ago, policy.digest, outcome, None if outcome is None else NOON - ago)


@dataclass
class ConstantLoad:
    """A load that brings `came` tasks a minute, each of which takes `takes` minutes of a slot, to a group that is scaled.

    Each action is carried out within the minute. `actions` has them with their minute.
    """

    policy: ScalingPolicy
    target: Target
    came: float
    takes: float
    waiting: float = 0.0
    now: datetime = NOON
    observations: list[Observation] = field(default_factory=list)
    actions: list[PastAction] = field(default_factory=list)
    ended: float = 0.0

    def run(self, count: int) -> None:
        """Let so many minutes pass."""
        for _ in range(count):
            self.now += MINUTE
            self.observations.append(self._minute())
            found = decide("heavy", self.observations[-20:], self.policy, self.target, self.now, self.actions)
            assert isinstance(found, (Action, Hold))
            if isinstance(found, Action):
                assert found.before == self.target
                self.target = found.after
                self.actions.append(PastAction(found, self.now, self.policy.digest, Outcome.DONE, self.now))

    @property
    def directions(self) -> set[Direction]:
        """Those of all actions that a load asked for."""
        return {each.action.direction for each in self.actions if not each.action.is_for_bounds}

    def _minute(self) -> Observation:
        slots = self.target.slots
        ended = min(self.waiting + self.came, slots / self.takes)
        before, self.ended = int(self.ended + 1e-9), self.ended + ended
        self.waiting = max(self.waiting + self.came - ended, 0.0)
        busy = min(ended * self.takes, float(slots))
        wait = timedelta(minutes=self.waiting / self.came) if self.came else timedelta(0)
        return Observation(
            self.now,
            round(self.waiting),
            wait if round(self.waiting) else timedelta(0),
            round(busy),
            slots,
            idle_share=1 - busy / slots if slots else None,
            ended=int(self.ended + 1e-9) - before,
            up=self.target.instances,
        )
