"""Says for how long past actions forbid new ones: cooldowns, which grow when a group goes to and fro, and targets that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, takewhile

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.words import duration_text, moment_text

BOUNDS_STEP = timedelta(minutes=1)
"""Towards bounds that hold now, a step is made so often."""
REVERSALS_OF, MOST_DOUBLINGS = timedelta(hours=1), 2
FIRST_BAN, LONGEST_BAN = timedelta(hours=6), timedelta(hours=24)
BAN_FROM_ZERO = timedelta(minutes=15)
"""The first optimizer of a group is tried again so soon after it failed, and then after twice the time, up to FIRST_BAN."""
PARTIAL_PAUSE, LONGEST_PARTIAL_PAUSE = timedelta(minutes=15), timedelta(hours=2)
"""When a container had no room for all, more are asked for again after the first time, and then after twice the time."""


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
            return max(policy.out_cooldown, self._after_partial(action))
        return policy.in_cooldown * (1 << min(self._reversals(), MOST_DOUBLINGS))

    def _after_partial(self, action: Action) -> timedelta:
        """How long more optimizers are not asked for, when fewer came than were: twice as long each time."""
        out = [each for each in self.actions if each.action.kind is action.kind and each.action.direction is Direction.OUT]
        partial = list(takewhile(lambda each: each.outcome is Outcome.PARTIAL, reversed(out)))
        if action.kind is not ActionKind.OPTIMIZERS or not partial:
            return timedelta(0)
        return min(PARTIAL_PAUSE * (1 << min(len(partial) - 1, 10)), LONGEST_PARTIAL_PAUSE)

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
        if of_number and not action.before.instances:
            # Its size has worked before, or nobody knows better, and without it the group has none at all.
            return max(failed) + min(BAN_FROM_ZERO * (1 << min(len(failed) - 1, 10)), FIRST_BAN)
        return max(failed) + min(FIRST_BAN * (1 << min(len(failed) - 1, MOST_DOUBLINGS)), LONGEST_BAN)
