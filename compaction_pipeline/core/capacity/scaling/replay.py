"""Says what a policy would have done with what was seen of a group. Nothing is changed by that.

Where the policy was on, its own records say when an action ended. An action that nobody carried out counts as done a minute later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.scaling.action import Action, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.observation import EVERY, Observation
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.capacity.scaling.record import ScalingRecord
from compaction_pipeline.core.capacity.scaling.rules import looks_back
from compaction_pipeline.core.capacity.scaling.target import Target

_SAME = timedelta(seconds=1)


def replayed(
    group: str,
    observations: Sequence[Observation],
    policy: ScalingPolicy,
    own: Target,
    records: Sequence[ScalingRecord],
    since: datetime,
) -> Sequence[PastAction]:
    """Return what the policy decides at each observation from `since` on, the oldest first.

    `observations` are sorted by time, and those of a day before `since` are among them. `own` is what the group is to have when no record
    says it, and `records` are its actions, the oldest first.
    """
    before = [each for each in records if each.at < since]
    times, back = [each.at for each in observations], looks_back(policy)
    target = _target_at(records, since, own)
    past = [each.past for each in before]
    told: list[PastAction] = []
    for number, seen in enumerate(observations):
        if seen.at < since:
            continue
        known = [_as_of(each, seen.at) for each in past]
        first = bisect_left(times, seen.at - back)
        decided = decide(group, observations[first : number + 1], policy, target, seen.at, known)
        real = next((each for each in records if abs(each.at - seen.at) <= _SAME), None)
        if real is not None and not isinstance(decided, Action):
            # It was carried out, whatever this policy says of it.
            past.append(real.past)
            target = real.in_force or real.action.after
        if isinstance(decided, Action):
            if any(each.is_open for each in known):
                past = [replace(each, outcome=Outcome.PARTIAL, closed_at=seen.at) if each.is_open else each for each in past]
            same = real is not None and real.action == decided
            made = real.past if real is not None and same else PastAction(decided, seen.at, policy.digest, Outcome.DONE, seen.at + EVERY)
            told.append(made)
            past.append(made)
            target = (real.in_force or decided.after) if real is not None and same else decided.after
    return told


def _as_of(action: PastAction, now: datetime) -> PastAction:
    """What was known of an action then: one that ended later was open."""
    if action.closed_at is None or action.closed_at <= now:
        return action
    return replace(action, outcome=None, closed_at=None)


def _target_at(records: Sequence[ScalingRecord], since: datetime, own: Target) -> Target:
    """What the group was to have then."""
    before = [each for each in records if each.at < since]
    if before:
        return before[-1].in_force or before[-1].action.after
    return records[0].action.before if records else own
