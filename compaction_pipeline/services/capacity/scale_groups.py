"""Watches the groups that have a policy of scaling, and changes what they are to have. Another service starts and drains optimizers.

One process does this at a time, while it holds the lease of the keeper. Each step is stored as the next revision of the group's scale, so a
process that was killed between two steps, or that has lost the lease, leaves a state from which the next one goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock

from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.scaling.action import ActionKind, Hold, Outcome
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.demand import LOOKED_AT, looks_again_in
from compaction_pipeline.core.capacity.scaling.observation import EVERY, KEPT_FOR, SOON, Observation
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.capacity.scaling.ports import ScalingStore
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord, Step
from compaction_pipeline.core.capacity.scaling.rules import looks_back
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.container import Container, ContainerKind, settings_digest
from compaction_pipeline.core.queue.container_answers import Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.queue.scaling.look import USED_FOR, Used, look, was_killed_lately
from compaction_pipeline.core.queue.scaling.sizes import count_there, group_policy, person_digest, sized, wanted_now
from compaction_pipeline.core.queue.scaling.steps import Ended, Seen, failed_after, left_of, next_step

log = logging.getLogger(__name__)

REMEMBERED = 200
"""Decisions look at so many of a group's last actions."""
RECORDS_KEPT = timedelta(days=400)
"""Actions that have ended are kept for so long."""
_AT_LEAST = EVERY - timedelta(seconds=1)
"""A minute, less what rounds differ."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with a policy, as it is now. `scale` is None before the first look at it."""

    group: ResourceGroup
    container: Container
    policy: ScalingPolicy
    scale: Scale | None
    optimizers: Sequence[Optimizer]


class ScaleGroups:
    """One verb: scale."""

    def __init__(
        self,
        groups: GroupStore,
        optimizers: OptimizerStore,
        queues: QueueReader,
        costs: CostStore,
        scaling: ScalingStore,
        containers: Containers,
        own: tuple[Clock, Callable[[], str]],
    ) -> None:
        """`own` has the clock, and what makes new ids."""
        self._groups = groups
        self._optimizers = optimizers
        self._queues = queues
        self._costs = costs
        self._scaling = scaling
        self._containers = containers
        self._clock, self._new_id = own
        self._looked_at: datetime | None = None
        self._seen: dict[str, tuple[timedelta, Sequence[Observation]]] = {}
        self._killed: frozenset[str] = frozenset()
        self._in_round = Lock()
        self._changed = False
        self._broken: dict[str, str] = {}
        """Why groups are not scaled, as the log has said it."""

    def scale(self, waits: Collection[str] = ()) -> bool:
        """Look at each group that a container serves. Of those with a policy, take the next step of an open action, or decide.

        It does so once a minute, however often it is asked to; and more often for groups with a policy in which tasks wait. `waits` are
        those in which somebody else has seen tasks that wait. Otherwise a call asks nothing of the state database. Return whether what a
        group is to have has changed. Raises StorageUnavailable.
        """
        if not self._in_round.acquire(blocking=False):
            return False
        try:
            now = self._clock()
            self._changed = False
            if self._looked_at is None or not timedelta(0) <= now - self._looked_at < _AT_LEAST:
                self._looked_at = now
                self._look(now)
            elif due := self._due(waits, now):
                self._look(now, due)
            return self._changed
        finally:
            self._in_round.release()

    def _due(self, waits: Collection[str], now: datetime) -> frozenset[str]:
        """The groups with a policy that are looked at again before the minute is over."""
        found = {name: looks_again_in(seen, lag) for name, (lag, seen) in self._seen.items()}
        soon = {name: min(again, SOON) if name in waits else again for name, again in found.items()}
        return frozenset(name for name, again in soon.items() if again < EVERY and now - self._seen[name][1][-1].at >= again)

    def _look(self, now: datetime, due: Collection[str] | None = None) -> None:
        """Look at all groups, or at those that are due."""
        groups = {group.name: group for group in self._groups.groups() if due is None or group.name in due}
        scales = self._scaling.scales()
        kept: dict[str, tuple[Container, ScalingPolicy | None]] = {}
        for name, group in groups.items():
            try:
                container = self._containers.container(group.container)
                is_external = container.kind is ContainerKind.EXTERNAL
                policy = None if is_external else group_policy(group, container)
            except ConfigError as error:
                # That may last for a moment. Until it is mended, nothing is changed.
                level = logging.DEBUG if self._broken.get(name) == str(error) else logging.WARNING
                log.log(level, "group=%s is not scaled: %s", name, error)
                self._broken[name] = str(error)
                continue
            self._broken.pop(name, None)
            if policy is None and name in scales:
                self._disable(scales[name], now)
            if not is_external:
                kept[name] = container, policy
        self._seen = {name: seen for name, seen in self._seen.items() if due is not None or kept.get(name, (None, None))[1] is not None}
        if not kept:
            return
        optimizers = self._optimizers.optimizers()
        used, works = self._used(now), self._queues.works(now - EVERY)
        for name, (container, policy) in kept.items():
            seen = look(name, optimizers, works.get(name, QueueWork(name)), used, now)
            if policy is None:
                # A policy is tried on what was seen before it is enabled.
                self._scaling.observe(name, seen)
                continue
            mine = [each for each in optimizers if each.group == name]
            self._group(_Group(groups[name], container, policy, scales.get(name), mine), seen, now)
        killed = [each for each in optimizers if was_killed_lately(each, now)]
        self._killed = frozenset(each.optimizer_id for each in killed if each.group in kept or each.optimizer_id in self._killed)
        if due is None:
            self._scaling.expire(now - KEPT_FOR, now - RECORDS_KEPT)

    def _used(self, now: datetime) -> Used:
        ended: Counter[str] = Counter()
        for (queue, _), number in self._queues.ended(now - EVERY, now).attempts.items():
            ended[queue] += number
        return Used(self._costs.uses(now - EVERY, now), self._costs.uses(now - USED_FOR, now), ended, self._killed)

    def _group(self, known: _Group, seen: Observation, now: datetime) -> None:
        name, scale = known.group.name, known.scale
        records = self._scaling.records(name, REMEMBERED)
        current = next((each for each in records if each.is_open), None)
        # Nothing else needs its answer, which may take seconds.
        answer = Running() if current is None else self._containers.running(known.container)
        seen = replace(seen, is_silent=isinstance(answer, Unknown))
        self._scaling.observe(name, seen)
        self._seen[name] = known.policy.lag, [*self._seen.get(name, (None, []))[1], seen][-LOOKED_AT:]
        if scale is None or scale.person != person_digest(known.group):
            scale = self._begin_anew(known, current, now)
            if scale is None or current is not None:
                return
        if current is not None:
            ended = self._next_step(known, scale, current, answer, now)
            if ended is not None:
                self._end(scale, current, ended, now)
                return
        elif self._called_good_too_early(known, scale, records, now):
            return
        if current is None or current.step is Step.ASKED:
            self._decide(known, scale, records, now)

    def _called_good_too_early(self, known: _Group, scale: Scale, records: Sequence[ScalingRecord], now: datetime) -> bool:
        """Take back the last action that changed something, when it has failed since it was over. What was good before it is so again."""
        last = next((each for each in records if each.outcome is not Outcome.FAILED), None)
        why = "" if last is None else failed_after(scale, last, known.optimizers, now)
        if last is None or not why:
            return False
        log.warning("group=%s %s is taken back: %s", last.group, last.action.after.in_words, why)
        before, replaces = last.action.before, scale.replaces or last.action.kind is not ActionKind.OPTIMIZERS
        again = replace(last, outcome=None, closed_at=None, in_force=None, step=Step.ENDING, why=why)
        self._store(scale.to(before, good=before, replaces=replaces), again)
        return True

    def _begin_anew(self, known: _Group, current: ScalingRecord | None, now: datetime) -> Scale | None:
        """What a person says of the group counts from now on. None when another process was first."""
        there = count_there(known.group.name, known.optimizers)
        scale = wanted_now(known.group, known.container, known.policy, known.scale, there)
        why = "a person changed the group meanwhile"
        stored = self._store(scale, None if current is None else current.closed(Outcome.CANCELED, why, now, scale.target))
        return scale if stored else None

    def _disable(self, scale: Scale, now: datetime) -> None:
        """The policy was taken away, so the group's own properties count. A later policy begins with these."""
        current = next((each for each in self._scaling.records(scale.group, REMEMBERED) if each.is_open), None)
        if current is not None or scale.is_on:
            why = "the policy was disabled meanwhile"
            record = None if current is None else current.closed(Outcome.CANCELED, why, now, scale.good)
            self._store(replace(scale.to(scale.good), person=""), record)

    def _next_step(self, known: _Group, scale: Scale, record: ScalingRecord, answer: Running | Unknown, now: datetime) -> Ended | None:
        polled = [each.first_polled_at for each in known.optimizers if each.first_polled_at and each.settings == record.settings]
        merged = self._queues.merged_by(max([record.at, *polled]))
        seen = Seen(
            known.optimizers,
            self._scaling.observations(known.group.name, record.at),
            known.group.held,
            any(each.optimizer_id in merged for each in known.optimizers if each.settings == record.settings),
            answer.alive if isinstance(answer, Running) else None,
        )
        if record.step is Step.ENDING and isinstance(answer, Running):
            # What never registered has no row that anybody drains, and an earlier request to end it may have got lost.
            for each in left_of(record, seen):
                if each.never_came and each.resource_id in answer.alive:
                    self._containers.stop(known.container, each.resource_id)
        return next_step(scale, record, seen, known.policy, now)

    def _end(self, scale: Scale, record: ScalingRecord, ended: Ended, now: datetime) -> None:
        if ended.outcome is None:
            log.warning("group=%s %s is taken back: %s", record.group, record.action.after.in_words, ended.why)
            replaces = scale.replaces or record.action.kind is not ActionKind.OPTIMIZERS
            self._store(scale.to(ended.target, replaces=replaces), replace(record, step=Step.ENDING, why=ended.why))
            return
        good, replaces = scale.good, ended.replaces
        if record.action.kind is ActionKind.OPTIMIZERS:
            # Every number of a size that works is good. Optimizers of two sizes stay as they are.
            good, replaces = replace(good, instances=ended.target.instances), scale.replaces
        elif ended.outcome is Outcome.DONE:
            good = ended.target
        log.info("group=%s %s: %s %s", record.group, record.action.trigger, ended.outcome.value, ended.why)
        closed = record.closed(ended.outcome, ended.why, now, ended.target)
        self._store(scale.to(ended.target, good=good, replaces=replaces), closed)

    def _decide(self, known: _Group, scale: Scale, records: Sequence[ScalingRecord], now: datetime) -> None:
        name = known.group.name
        observations = self._scaling.observations(name, now - looks_back(known.policy))
        decided = decide(name, observations, known.policy, scale.target, now, [each.past for each in records])
        if isinstance(decided, Hold):
            log.debug("group=%s nothing is changed: %s", name, decided.reason)
            return
        current = next((each for each in records if each.is_open), None)
        if current is not None:
            # Those that were replaced stay, and further ones are of the size that is known to work. The next look asks for them.
            why = "more optimizers were needed before all were replaced"
            mixed = replace(scale.good, instances=scale.target.instances)
            self._store(scale.to(mixed, replaces=False), current.closed(Outcome.PARTIAL, why, now, mixed))
            return
        scale = scale.to(decided.after, replaces=scale.replaces or decided.kind is not ActionKind.OPTIMIZERS)
        settings = settings_digest(known.container, sized(known.group, known.container, scale.target))
        if self._store(scale, ScalingRecord(self._new_id(), name, now, known.policy.digest, decided, settings, team=known.group.team)):
            log.info("group=%s %s: from %s to %s", name, decided.trigger, decided.before.in_words, decided.after.in_words)

    def _store(self, scale: Scale, record: ScalingRecord | None) -> bool:
        stored = self._scaling.change(scale, record)
        self._changed = self._changed or stored
        if not stored:
            log.info("group=%s another process changed what it is to have, so this one changes nothing", scale.group)
        return stored
