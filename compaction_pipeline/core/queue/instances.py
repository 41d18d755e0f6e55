"""How many optimizers a group gets: which are started, which are drained, and which will never register.

Rows are counted, not processes: a row exists before the process that it stands for. Optimizers that people started are left alone.
Optimizers with old settings are replaced one by one: the next one takes tasks before the one that it replaces stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile

from compaction_pipeline.core.queue.group import INSTANCES, MIN_INSTANCES, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.words import count_text, duration_text

REGISTERS_WITHIN = timedelta(minutes=5)
"""An optimizer that has not registered this long after its start never will. A start of Spark takes seconds, a full cluster minutes."""
LATE = f"it did not register within {duration_text(REGISTERS_WITHIN)}"
RESTS_AFTER = timedelta(minutes=5)
"""A group that has merged nothing for so long, and has nothing to merge, needs only its `min-instances`. Before, writers may soon commit
again, and a start of Spark costs more than a few idle minutes."""
ORPHANED_AFTER = timedelta(minutes=5)
"""A process whose optimizer was LOST or ENDED is killed this long after it was last heard of. Before, it may only be cut off, or ending."""
HANGS_AFTER = 2 * REGISTERS_WITHIN
"""An optimizer that drains and has not asked for a task this long after its start has an engine that does not start."""
SURGE = 1
"""A group that replaces optimizers may have this many more than it wants."""
SHOWN_FAILURES = 3
"""So many failed starts in a row are a problem of the group that people see. From then on the starts are made more and more rarely."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Wants:
    """How many optimizers a group is to have, and with which settings.

    `settings` is the digest of the present settings; None when the container is not known, and then no optimizer counts as outdated.
    While `replaces` is False, none of them is replaced because it is outdated.
    """

    instances: int
    settings: str | None
    replaces: bool = True

    def outdates(self, each: Optimizer) -> bool:
        """Whether an optimizer is to be replaced."""
        return self.replaces and self.settings is not None and each.settings != self.settings


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be done for one group now. `lost` and `drain` map ids of optimizers to the reason; `start` counts those to start.

    `most` is how many the group may have then, without those that drain. `replaces` says that the one to start is one more than the group
    wants. `gives_way` is the id of the optimizer that drains first when there is no room for one more. It is "" when none may.
    """

    start: int = 0
    drain: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    most: int = 0
    replaces: bool = False
    gives_way: str = ""


def wanted_instances(group: ResourceGroup, work: QueueWork) -> int:
    """Return how many optimizers a group needs. `work` counts what was merged in the time `RESTS_AFTER`."""
    has_work = work.taken > 0 or work.merged > 0
    return group.number(INSTANCES if has_work else MIN_INSTANCES) or 0


def is_late(optimizer: Optimizer, now: datetime) -> bool:
    """Return whether an optimizer will never register, because it had the time for it."""
    return optimizer.state is OptimizerState.STARTING and now - optimizer.started_at >= REGISTERS_WITHIN


def round_of(
    group: ResourceGroup,
    optimizers: Iterable[Optimizer],
    wants: Wants,
    dead: Mapping[str, str],
    now: datetime,
    unseen: Collection[str] = (),
    attempts: Mapping[str, int] = {},
) -> Round:
    """Return what is to be done so that a group has what it wants.

    `dead` maps ids of STARTING optimizers whose process has ended to the reason. `unseen` are containers that did not answer: none of their
    optimizers is given up, however late it is. `attempts` counts what each optimizer runs, by its id; those that run nothing are left out.

    An optimizer that drains counts no more. An outdated one works on until another one has polled, so that a group that gets bad settings
    keeps what it has.
    """
    wanted = wants.instances
    mine = [each for each in optimizers if each.group == group.name and each.is_managed]
    starting = [each for each in mine if each.state is OptimizerState.STARTING]
    lost = {each.optimizer_id: why for each in starting if (why := _why_lost(each, group, wants, dead, now, unseen))}
    coming = [each for each in starting if each.optimizer_id not in lost]
    running = [each for each in mine if each.state is OptimizerState.RUNNING]
    outdated = _kept_first((each for each in running if wants.outdates(each)), attempts)
    current = _kept_first((each for each in running if not wants.outdates(each)), attempts)
    polled = sum(each.first_polled_at is not None for each in current)
    kept = max(0, len(outdated) - max(0, polled + len(outdated) - wanted))
    drain = dict.fromkeys((each.optimizer_id for each in outdated[kept:]), changed_text(group))
    drain |= dict.fromkeys((each.optimizer_id for each in current[wanted:]), _surplus(group, wanted))
    stay = kept + min(len(current), wanted) + len(coming)
    draining = sum(each.state is OptimizerState.DRAINING for each in mine)
    # Those that drain still have their memory, and a person may change settings again and again.
    replaces = kept > 0 and stay == wanted and not coming and polled >= len(current) and draining < wanted
    most = wanted + SURGE * replaces
    known = [replace(each, state=OptimizerState.LOST) if each.optimizer_id in lost else each for each in mine]
    start = _allowed(max(0, most - stay), bool(coming), failed_starts(group, known, wants.settings or ""), now)
    gives_way = outdated[kept - 1].optimizer_id if replaces and len(running) > 1 and not draining else ""
    return Round(start, drain, lost, most, replaces, gives_way)


def changed_text(group: ResourceGroup) -> str:
    """Say why an optimizer drains whose settings are no longer those of its group."""
    return f"the settings of group {group.name} or of its container have changed, so another optimizer takes its place"


def _why_lost(each: Optimizer, group: ResourceGroup, wants: Wants, dead: Mapping[str, str], now: datetime, unseen: Collection[str]) -> str:
    """Why a STARTING optimizer is given up; "" when it is waited for."""
    if each.optimizer_id in dead:
        return dead[each.optimizer_id]
    if each.container in unseen:
        return ""
    if is_late(each, now):
        return LATE
    # In a container that the group has no longer, perhaps nobody can stop it. It is replaced when it has registered.
    changed = each.container == group.container and wants.outdates(each)
    return f"the settings of group {group.name} or of its container changed before it registered" if changed else ""


def _kept_first(optimizers: Iterable[Optimizer], attempts: Mapping[str, int]) -> list[Optimizer]:
    """Those that run the most stay, and the oldest among equals: one that drains keeps its memory until its last attempt has ended."""
    return sorted(optimizers, key=lambda each: (-attempts.get(each.optimizer_id, 0), each.started_at, each.optimizer_id))


def _allowed(missing: int, one_comes: bool, failed: Sequence[Optimizer], now: datetime) -> int:
    """How many of the missing optimizers may be started now. After a failure they are tried one at a time."""
    if not failed:
        return missing
    if one_comes or now < next_start(failed):
        return 0
    return min(missing, 1)


def orphans(optimizers: Iterable[Optimizer], now: datetime) -> frozenset[str]:
    """Return the resource ids that containers gave out, and that no live optimizer has had for a while. One that hangs is not live."""
    managed = [each for each in optimizers if each.is_managed]
    hanging = {each.optimizer_id for each in managed if _hangs(each, now)}
    needed = {
        each.resource_id
        for each in managed
        if each.optimizer_id not in hanging and (each.state.is_live or now - each.touched_at < ORPHANED_AFTER)
    }
    return frozenset(each.resource_id for each in managed) - needed


def _hangs(each: Optimizer, now: datetime) -> bool:
    """Whether an optimizer is to drain, and has not asked for a task in all of its time. It would say for ever that it is there: it learns
    that it is to end when its engine has started. It has no task, so nothing is lost with it."""
    asked = each.first_polled_at is not None or each.poll_id
    return each.state is OptimizerState.DRAINING and not asked and now - each.started_at >= HANGS_AFTER


def failed_starts(group: ResourceGroup, optimizers: Iterable[Optimizer], settings: str | None = None) -> Sequence[Optimizer]:
    """Return the starts of the group's container that failed since the last one that did not, the newest first.

    An optimizer that never registered, or that failed or fell silent right after its start, is a failed start.

    With `settings`, only starts with these settings count, because others say nothing about them.
    """
    tried = [
        each
        for each in optimizers
        if each.group == group.name
        and each.container == group.container
        and each.is_managed
        and each.state is not OptimizerState.STARTING
        and (settings is None or each.settings == settings)
    ]
    newest_first = sorted(tried, key=lambda each: (each.started_at, each.optimizer_id), reverse=True)
    return tuple(takewhile(lambda each: each.never_came or each.ended_at_once, newest_first))


def next_start(failed: Sequence[Optimizer]) -> datetime:
    """Return from when on a container that failed to start is tried again. `failed` are its failed starts, the newest first."""
    pause = timedelta(0)
    if len(failed) >= SHOWN_FAILURES:
        # The exponent is limited, because the number of failures is not.
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(len(failed) - SHOWN_FAILURES, 10))
    return failed[0].started_at + pause


def start_problem(group: ResourceGroup, optimizers: Iterable[Optimizer]) -> str | None:
    """Say why a group gets no more optimizers: its container failed several times in a row, has no room or does not answer. None when all
    is well."""
    failed = failed_starts(group, optimizers)
    if len(failed) < SHOWN_FAILURES:
        return group.held or None
    return (
        f"container {group.container} failed to start {count_text(len(failed), 'optimizer')} in a row; the last time: {failed[0].why}; "
        f"the next start is at {next_start(failed):%H:%M:%S} UTC, or as soon as the settings of the group or the container change"
    )


def _surplus(group: ResourceGroup, wanted: int) -> str:
    return f"group {group.name} needs {count_text(wanted, 'optimizer')} now"
