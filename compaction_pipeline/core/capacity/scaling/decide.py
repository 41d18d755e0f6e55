"""Decides whether a group's target is changed now, or says why not. Whoever has the same observations and past decides the same.

The order is: bounds that hold now, then more of something, then less of something; among kinds memory, parallelism, cores, optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction, Hold, PastAction
from compaction_pipeline.core.capacity.scaling.demand import STALE
from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.past import Past
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.capacity.scaling.rules import IN_RULES, OUT_RULES, STEP, Rule, Seen, first_out, least_instances, with_slots
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.words import count_text, duration_text, moment_text


def decide(
    group: str, observations: Sequence[Observation], policy: ScalingPolicy, target: Target, now: datetime, past: Sequence[PastAction]
) -> Action | Hold:
    """Return the action that group `group` needs now, or why there is none.

    `observations` are those of the group, a day of them for the rule of cores; `target` is what the group is to have now, and `past` its
    actions of the last three days. While an action is open, nothing is decided; but while one replaces optimizers one by one, more
    optimizers may be asked for: this ends the open action.
    """
    known, seen = Past.of(past, now), Seen.of(observations, policy, target, now)
    current = known.open
    if current is not None and current.action.kind is ActionKind.OPTIMIZERS:
        return Hold(f"the last action of group {group} is not over: {current.action.trigger}")
    if current is None:
        outside = _to_bounds(seen)
        if outside is not None:
            forbidden = known.forbids(outside, policy)
            return outside if forbidden is None else Hold(f"{outside.trigger}; {forbidden}")
    if not policy.is_open(now):
        opening = min(each.window.next_opening(now) for each in policy.windows)
        return Hold(f"group {group} is scaled again from {moment_text(opening, now)} on, when its next window opens")
    if not seen.last:
        first = _first([first_out], known, seen)
        if isinstance(first, Action):
            return first
        return Hold(f"group {group} was not observed in each of the last three minutes, or not within {duration_text(STALE)}")
    if current is not None:
        return _first([OUT_RULES[ActionKind.OPTIMIZERS]], known, seen)
    return _by_load(known, seen)


def _by_load(known: Past, seen: Seen) -> Action | Hold:
    more = _first(OUT_RULES.values(), known, seen)
    # Nothing is taken away while tasks wait.
    if isinstance(more, Action) or seen.is_behind:
        return more
    less = _first(IN_RULES.values(), known, seen)
    return less if isinstance(less, Action) else Hold(f"{more.reason}; {less.reason}")


def _first(rules: Iterable[Rule], known: Past, seen: Seen) -> Action | Hold:
    """The first action that may be taken; else why the last rule, that of optimizers, asks for none."""
    reason = ""
    for rule in rules:
        found = rule(seen)
        reason = found if isinstance(found, str) else _forbidden(found, known, seen)
        if isinstance(found, Action) and not reason:
            return found
    return Hold(reason)


def _forbidden(action: Action, known: Past, seen: Seen) -> str:
    """Say why an action may not be taken; "" when it may. No rule asks for what the opposite rule would undo (the tests' law)."""
    forbidden = known.forbids(action, seen.policy)
    return "" if forbidden is None else f"{action.trigger}; {forbidden}"


def _to_bounds(seen: Seen) -> Action | None:
    """The step towards the bounds that hold now; None when the target is within them."""
    target, bounds = seen.target, seen.bounds
    least, most = least_instances(bounds, target.parallelism), bounds.most // target.parallelism
    step = seen.policy.step or max(target.instances, STEP)
    verb = "is" if target.slots == 1 else "are"
    words = f"{count_text(target.slots, 'slot')} {verb} wanted, but from {bounds.least} to {bounds.most} are allowed now"
    if target.instances > most:
        if not most and bounds.most and seen.policy.most_slots_of_one is not None:
            return Action(
                ActionKind.PARALLELISM,
                Direction.IN,
                target,
                with_slots(replace(target, instances=1), bounds.most),
                f"{words}: one optimizer of {count_text(bounds.most, 'slot')}",
                is_for_bounds=True,
            )
        after = replace(target, instances=max(most, target.instances - step))
        direction = Direction.IN
    elif target.instances < least:
        after, direction = replace(target, instances=min(least, target.instances + step)), Direction.OUT
    else:
        return None
    trigger = f"{words}: {target.instances} → {count_text(after.instances, 'optimizer')}"
    return Action(ActionKind.OPTIMIZERS, direction, target, after, trigger, is_for_bounds=True)
