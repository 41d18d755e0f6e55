"""Tells what groups are to have by their policies, what was done for that, and what a policy would have done. It changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil

from compaction_pipeline.core.capacity.notices.ports import NoticeCounts, NoticeStore
from compaction_pipeline.core.capacity.scaling.action import Hold, PastAction
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.demand import apart
from compaction_pipeline.core.capacity.scaling.observation import KEPT_FOR, Observation
from compaction_pipeline.core.capacity.scaling.policy import ENABLED, MAX_SLOTS, is_enabled
from compaction_pipeline.core.capacity.scaling.ports import ScalingStore
from compaction_pipeline.core.capacity.scaling.record import ScalingRecord
from compaction_pipeline.core.capacity.scaling.replay import replayed
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.group import ResourceGroup, unknown_group
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.scaling.sizes import group_policy, own_target, person_digest

SHOWN = 50
"""So many of the newest actions are shown."""
_BESIDE = timedelta(hours=1)
_DAY = timedelta(days=1, minutes=10)


@dataclass(frozen=True, slots=True)
class Hour:
    """What was seen in an hour beside an action: how long tasks had waited at most, in 95 of 100 minutes, and the memory that was reserved.

    None means that nobody looked, or that nobody knows the memory.
    """

    wait_seconds_p95: float | None
    gb_hours: float | None


@dataclass(frozen=True, slots=True)
class ScalingAction:
    """An action, with the hours before it began and after it ended."""

    record: ScalingRecord
    before: Hour
    after: Hour


@dataclass(frozen=True, slots=True)
class GroupScaling:
    """What a group is to have. `now` says what is decided now, in words. `problem` says why its policy does nothing; "" when it works.
    `notices` says what became of what people were to be told of it."""

    group: str
    target: Target | None
    good: Target | None
    now: str
    problem: str = ""
    actions: tuple[ScalingAction, ...] = ()
    notices: NoticeCounts = NoticeCounts()


class ReadScaling:
    """Verbs: groups, group, dry_run, scaled."""

    def __init__(self, groups: GroupStore, scaling: ScalingStore, notices: NoticeStore, containers: Containers, clock: Clock) -> None:
        self._groups = groups
        self._scaling = scaling
        self._notices = notices
        self._containers = containers
        self._clock = clock

    def scaled(self) -> Sequence[str]:
        """Return the names of the groups that have a policy."""
        return [group.name for group in self._groups.groups() if is_enabled(group.properties)]

    def groups(self) -> Sequence[GroupScaling]:
        """Return the groups that have a policy, by name, with their newest actions."""
        return [self._told(group) for group in self._groups.groups() if is_enabled(group.properties)]

    def group(self, name: str) -> GroupScaling:
        """Return one group, with or without a policy. Raises NotFoundError."""
        found = self._groups.group(name)
        if found is None:
            raise unknown_group(name)
        return self._told(found)

    def dry_run(self, name: str, hours: int) -> Sequence[PastAction]:
        """Return what the group's policy would have done in the last hours, as if it were enabled.

        Raises NotFoundError, and ConfigError when the group has no policy, or when nothing was seen of it.
        """
        group = self._groups.group(name)
        if group is None:
            raise unknown_group(name)
        if MAX_SLOTS not in group.properties:
            raise ConfigError(
                f"group {name} has no policy of scaling to try, because it lacks '{MAX_SLOTS}': set it to the most slots of the group, "
                f"e.g. `compaction-pipeline group change {name} -p {MAX_SLOTS}=8`, which changes nothing without '{ENABLED}'"
            )
        container = self._containers.container(group.container)
        enabled = replace(group, properties={**group.properties, ENABLED: "true"})
        policy = group_policy(enabled, container)
        assert policy is not None, "it is enabled"
        since = self._clock() - timedelta(hours=hours)
        seen = self._scaling.observations(name, since - _DAY)
        if not any(each.at >= since for each in seen):
            raise ConfigError(
                f"nothing was seen of group {name} in the last {hours} h: a server that starts its optimizers looks at it once a minute, "
                f"and keeps what it saw for {KEPT_FOR.days} days"
            )
        records = self._scaling.records(name, 1_000)[::-1]
        return replayed(name, seen, policy, own_target(enabled, container, policy), records, since)

    def _told(self, group: ResourceGroup) -> GroupScaling:
        records = self._scaling.records(group.name, SHOWN)
        scale = self._scaling.scales().get(group.name)
        oldest = min((each.at for each in records), default=self._clock())
        seen = self._scaling.observations(group.name, oldest - _BESIDE)
        actions = tuple(_beside(each, seen) for each in records)
        now, problem = self._now(group, [each.past for each in records])
        is_on = scale is not None and scale.is_on
        target, good = (scale.target, scale.good) if scale and is_on else (None, None)
        notices = self._notices.counts().get(group.name, NoticeCounts())
        return GroupScaling(group.name, target, good, now, problem, actions, notices)

    def _now(self, group: ResourceGroup, past: Sequence[PastAction]) -> tuple[str, str]:
        """What is decided now, and why nothing is."""
        try:
            container = self._containers.container(group.container)
            policy = group_policy(group, container)
        except ConfigError as error:
            return "", str(error)
        if policy is None:
            return f"group {group.name} is not scaled: '{ENABLED}' is not true", ""
        scale = self._scaling.scales().get(group.name)
        if scale is None or scale.person != person_digest(group):
            return "a server that starts optimizers has not looked at it yet", ""
        now = self._clock()
        found = decide(group.name, self._scaling.observations(group.name, now - _DAY), policy, scale.target, now, past)
        return found.reason if isinstance(found, Hold) else found.trigger, group.held


def _beside(record: ScalingRecord, seen: Sequence[Observation]) -> ScalingAction:
    ended = record.closed_at
    before = [each for each in seen if record.at - _BESIDE <= each.at < record.at]
    after = [] if ended is None else [each for each in seen if ended < each.at <= ended + _BESIDE]
    return ScalingAction(record, _hour(before, record.action.before), _hour(after, record.in_force or record.action.after))


def _hour(seen: Sequence[Observation], target: Target) -> Hour:
    if not seen:
        return Hour(None, None)
    each_minute = apart(seen)
    waits = sorted(each.oldest_wait.total_seconds() for each in each_minute)
    minutes = sum(each.up + each.starting + each.draining for each in each_minute)
    hours = minutes * target.memory_bytes / 60 / 1e9 if target.memory_bytes else None
    return Hour(waits[ceil(0.95 * len(waits)) - 1], hours)
