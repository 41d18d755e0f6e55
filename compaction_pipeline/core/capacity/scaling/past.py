"""Says for how long past actions forbid new ones: cooldowns, which grow when a group goes to and fro, and targets that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.words import duration_text, moment_text

BOUNDS_STEP = timedelta(minutes=1)
"""Towards bounds that hold now, a step is made so often."""
REVERSALS_OF, MOST_DOUBLINGS = timedelta(hours=1), 2
FIRST_BAN, LONGEST_BAN = timedelta(hours=6), timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Past:
    """A group's past actions, the oldest first."""

    actions: Sequence[PastAction]
    now: datetime

    @staticmethod
    def of(actions: Sequence[PastAction], now: datetime) -> Past:
        """Sort them by their time. What was decided after `now` is left out."""
        return Past(sorted((each for each in actions if each.at <= now), key=lambda each: each.at), now)

    @property
    def open(self) -> PastAction | None:
        """The action that has not ended."""
        return next((each for each in reversed(self.actions) if each.is_open), None)

    def forbids(self, action: Action, policy: ScalingPolicy) -> str | None:
        """Say why an action may not be taken yet; None when it may."""
        banned = self._banned_until(action, policy)
        if banned is not None and self.now < banned:
            return (
                f"{action.after.in_words} failed before, and is not tried until {moment_text(banned, self.now)} or a change of the policy"
            )
        since = self._since(action)
        pause = self._pause(action, policy)
        if since is None or self.now - since >= pause:
            return None
        return f"the last change was {duration_text(self.now - since)} ago, and {duration_text(pause)} must pass before the next one"

    def _since(self, action: Action) -> datetime | None:
        """The time of the last action that an action must keep away from."""
        last = [each for each in self.actions if each.action.is_for_bounds is action.is_for_bounds]
        if not action.is_for_bounds and action.direction is Direction.OUT:
            last = [each for each in last if each.action.direction is Direction.OUT]
        return last[-1].at if last else None

    def _pause(self, action: Action, policy: ScalingPolicy) -> timedelta:
        if action.is_for_bounds:
            return BOUNDS_STEP
        if action.direction is Direction.OUT:
            return policy.out_cooldown
        return policy.in_cooldown * (1 << min(self._reversals(), MOST_DOUBLINGS))

    def _reversals(self) -> int:
        """How often the direction has changed within the last hour."""
        lately = [each.action.direction for each in self.actions if self.now - each.at <= REVERSALS_OF and not each.action.is_for_bounds]
        return sum(before is not after for before, after in pairwise(lately))

    def _banned_until(self, action: Action, policy: ScalingPolicy) -> datetime | None:
        """Until when a target that failed is not tried again. A size that failed is banned for every number of optimizers."""

        of_number = action.kind is ActionKind.OPTIMIZERS

        def key(other: Action) -> str:
            return other.after.digest if of_number else other.after.size_digest

        failed = [
            each.closed_at
            for each in self.actions
            if each.outcome is Outcome.FAILED
            and each.closed_at is not None
            and each.policy == policy.digest
            and (each.action.kind is ActionKind.OPTIMIZERS) is of_number
            and key(each.action) == key(action)
        ]
        if not failed:
            return None
        return max(failed) + min(FIRST_BAN * (1 << min(len(failed) - 1, MOST_DOUBLINGS)), LONGEST_BAN)
