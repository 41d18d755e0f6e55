"""Says what becomes of an open action: whether its optimizers work, have failed, or are still waited for.

Time in which nobody looked, or in which the container did not answer, counts for nothing: minutes are counted by observations. So a server
that was away ends no action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

from compaction_pipeline.core.capacity.scaling.action import ActionKind, Direction, Outcome
from compaction_pipeline.core.capacity.scaling.demand import apart
from compaction_pipeline.core.capacity.scaling.observation import EVERY, Observation
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord, Step
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.queue.instances import REGISTERS_WITHIN, SHOWN_FAILURES
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.words import count_text, duration_text

COMES_WITHIN = int(REGISTERS_WITHIN / EVERY) + 1
"""In so many minutes that were observed, another optimizer must have polled."""
KILLS = 2
"""So many kills for memory roll an action back, also when they come within `TOO_EARLY` of its end."""
KILLED_WITHIN = timedelta(minutes=30)
TOO_EARLY = timedelta(minutes=30)
"""A configuration that fails so soon after its action was over was called good too early."""
_MEMORY_WORDS = ("OOMKilled", "beyond physical memory", "exit code 137", "exit code: 137", "Container killed on request. Exit code is 137")


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a group while an action of it is open.

    `optimizers` are all rows of the group. `held` says why its container starts nothing now; "" when nothing holds it. `observations` are
    those since the action began. `merged` says that a task was merged since the new optimizers came. `alive` are the resource ids that the
    container says are alive; None when it did not answer.
    """

    optimizers: Sequence[Optimizer]
    observations: Sequence[Observation]
    held: str = ""
    merged: bool = False
    alive: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """An action ends with this outcome. `target` is what the group is to have from now on. None as `outcome` begins the step ENDING."""

    outcome: Outcome | None
    why: str
    target: Target
    replaces: bool = True


def is_killed_for_memory(optimizer: Optimizer) -> bool:
    """Whether the container said that an optimizer ended because it used too much memory."""
    return not optimizer.state.is_live and any(word in optimizer.why for word in _MEMORY_WORDS)


def next_step(scale: Scale, record: ScalingRecord, seen: Seen, policy: ScalingPolicy, now: datetime) -> Ended | None:
    """Return what becomes of an open action now; None while it goes on."""
    if record.step is Step.ENDING:
        return None if left_of(record, seen) else Ended(Outcome.FAILED, record.why, scale.target)
    mine = [each for each in seen.optimizers if each.settings == record.settings]
    # A number is reached by optimizers of any size: while a replacement was given up, there are several.
    asked = seen.optimizers if record.action.kind is ActionKind.OPTIMIZERS else mine
    up = _taking(asked)
    killed = _kills([each for each in mine if each.started_at >= record.at])
    if killed:
        return Ended(None, killed, _back(scale, record))
    failed = _failed_starts(record, mine)
    if failed:
        return _fewer(scale, record, up, failed) or Ended(None, failed, _back(scale, record))
    if _is_reached(record, seen, up):
        return _worked(record, seen, up, policy)
    lost = [each for each in seen.optimizers if _was_lost(each, record)]
    if lost:
        words = f"optimizer {lost[0].optimizer_id} was lost meanwhile: {lost[0].why}"
        return Ended(Outcome.CANCELED, words, _kept(scale, record))
    if record.action.kind is not ActionKind.OPTIMIZERS and not policy.is_open(now) and not any(_is_coming(each) for each in mine):
        return Ended(Outcome.PARTIAL, "its window ended before all optimizers were replaced", scale.good, replaces=False)
    return _too_late(scale, record, seen, up)


def failed_after(scale: Scale, record: ScalingRecord, optimizers: Sequence[Optimizer], now: datetime) -> str:
    """Say why the configuration of an action that is over was called good too early; "" when it was not.

    It was killed for memory too often, or a larger number was reached, and then those that were to be more have died one after the other.
    """
    if record.outcome is not Outcome.DONE or record.closed_at is None or now - record.closed_at > TOO_EARLY:
        return ""
    mine = [each for each in optimizers if each.settings == record.settings and each.started_at >= record.at]
    return _kills(mine) or _dies_again_and_again(scale, record, optimizers, mine)


def _dies_again_and_again(scale: Scale, record: ScalingRecord, optimizers: Sequence[Optimizer], mine: Sequence[Optimizer]) -> str:
    """One that asks for a task and dies of it has asked, so its action was called done. Nothing more came when as few work as before."""
    action = record.action
    is_more = action.kind is ActionKind.OPTIMIZERS and action.direction is Direction.OUT
    if not is_more or action.after != scale.target or len(_taking(optimizers)) > action.before.instances:
        return ""
    tried = sorted((each for each in mine if each.state is not OptimizerState.STARTING), key=lambda each: each.started_at, reverse=True)
    failed = list(takewhile(lambda each: each.never_came or each.ended_at_once, tried))
    if len(failed) < SHOWN_FAILURES:
        return ""
    return f"{count_text(len(failed), 'optimizer')} of it failed one after the other; the last time: {failed[0].why}"


def _taking(optimizers: Sequence[Optimizer]) -> Sequence[Optimizer]:
    """Those of a container that take tasks."""
    return [each for each in optimizers if each.is_managed and each.state is OptimizerState.RUNNING and each.first_polled_at is not None]


def left_of(record: ScalingRecord, seen: Seen) -> tuple[Optimizer, ...]:
    """What there still is of the optimizers that a failed action started.

    That is rows of them that have not ended, and what the container has of one that never registered. While it does not answer, all of
    these count as there.
    """
    sizes = record.action.kind is not ActionKind.OPTIMIZERS
    mine = [each for each in seen.optimizers if each.settings == record.settings and each.started_at >= record.at]
    there = [each for each in mine if each.state is OptimizerState.STARTING or (sizes and each.state is OptimizerState.RUNNING)]
    there += [each for each in mine if each.never_came and (seen.alive is None or each.resource_id in seen.alive)]
    return tuple(there)


def _failed_starts(record: ScalingRecord, mine: Sequence[Optimizer]) -> str:
    failed = [each for each in mine if each.started_at >= record.at and (each.never_came or each.ended_at_once)]
    few = len(failed) < SHOWN_FAILURES
    return "" if few else f"{count_text(len(failed), 'optimizer')} of it failed; the last time: {failed[-1].why}"


def _fewer(scale: Scale, record: ScalingRecord, up: Sequence[Optimizer], why: str) -> Ended | None:
    """What came of a larger number stays, when more of it does not come; None when nothing of it came."""
    is_out = record.action.kind is ActionKind.OPTIMIZERS and record.action.direction is Direction.OUT
    if not is_out or len(up) <= record.action.before.instances:
        return None
    return Ended(Outcome.PARTIAL, why, replace(scale.target, instances=len(up)))


def _kills(optimizers: Sequence[Optimizer]) -> str:
    killed = [each for each in optimizers if is_killed_for_memory(each)]
    return f"{count_text(len(killed), 'optimizer')} of it were killed for memory: {killed[-1].why}" if len(killed) >= KILLS else ""


def _is_reached(record: ScalingRecord, seen: Seen, up: Sequence[Optimizer]) -> bool:
    running = [each for each in seen.optimizers if each.is_managed and each.state is OptimizerState.RUNNING]
    if record.action.kind is not ActionKind.OPTIMIZERS:
        return len(up) >= record.action.after.instances and len(up) == len(running)
    if record.action.direction is Direction.IN:
        return len(running) <= record.action.after.instances
    return len(up) >= record.action.after.instances


def _worked(record: ScalingRecord, seen: Seen, up: Sequence[Optimizer], policy: ScalingPolicy) -> Ended | None:
    """An action of another number has worked when it is reached, because its size is known. Another size must merge something, or stand
    idle for a while."""
    action = record.action
    polled = [each.first_polled_at for each in up if each.first_polled_at is not None]
    quiet = polled and seen.observations and seen.observations[-1].at - max(polled) >= policy.idle
    if action.kind is ActionKind.OPTIMIZERS or seen.merged or quiet or not action.after.instances:
        return Ended(Outcome.DONE, "", action.after)
    return None


def _too_late(scale: Scale, record: ScalingRecord, seen: Seen, up: Sequence[Optimizer]) -> Ended | None:
    """Give the action up when nothing more of it has come for a while. While the container has no room, that is nobody's fault."""
    progress = max([record.at, *(each.first_polled_at for each in up if each.first_polled_at is not None)])
    waited = apart([each for each in seen.observations if each.at > progress and not each.is_silent])
    is_size = record.action.kind is not ActionKind.OPTIMIZERS
    # The next one is replaced when fewer drain, and a task that is merged may take long.
    drains = is_size and any(each.state is OptimizerState.DRAINING for each in seen.optimizers)
    if len(waited) < COMES_WITHIN or drains:
        return None
    late = f"no other optimizer of it asked for tasks within {duration_text(REGISTERS_WITHIN)}"
    if not seen.held:
        return _fewer(scale, record, up, late) or Ended(None, late, _back(scale, record))
    if seen.alive is None:
        return None
    if is_size:
        return Ended(Outcome.PARTIAL, f"{late}: {seen.held}", scale.good, replaces=False)
    why = f"{late}: {seen.held}"
    return _fewer(scale, record, up, why) or Ended(Outcome.PARTIAL, why, record.action.before)


def _back(scale: Scale, record: ScalingRecord) -> Target:
    """The last good configuration. It has the number of before when only the number was wrong."""
    return record.action.before if record.action.kind is ActionKind.OPTIMIZERS else scale.good


def _kept(scale: Scale, record: ScalingRecord) -> Target:
    """What stays when an action is canceled: a number that was asked for, but no size that nobody has seen work."""
    return scale.target if record.action.kind is ActionKind.OPTIMIZERS else scale.good


def _was_lost(each: Optimizer, record: ScalingRecord) -> bool:
    """Whether an optimizer that worked was lost since the action began."""
    is_lost = each.is_managed and each.state is OptimizerState.LOST and bool(each.process) and not each.ended_at_once
    return is_lost and each.started_at < record.at <= each.touched_at


def _is_coming(each: Optimizer) -> bool:
    is_new = each.state is OptimizerState.RUNNING and each.first_polled_at is None
    return each.state is OptimizerState.STARTING or is_new
