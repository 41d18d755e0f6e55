"""What scales a simulated group: `decide`, Kubernetes' HPA, and a number that never changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from math import ceil

from compaction_pipeline.core.capacity.scaling.action import Action, Outcome, PastAction
from compaction_pipeline.core.capacity.scaling.decide import decide
from compaction_pipeline.core.capacity.scaling.demand import looks_again_in
from compaction_pipeline.core.capacity.scaling.observation import AT_ONCE, EVERY, SOON, Observation
from compaction_pipeline.core.capacity.scaling.policy import ScalingPolicy
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline_tests.core.capacity.scaling.simulation import Group

BEGINNING = datetime(2026, 11, 27, tzinfo=timezone.utc)


@dataclass
class Fixed:
    """So many optimizers, always."""

    size: int
    every: float = 3_600.0

    def wanted(self, now: float, group: Group) -> int:
        """The same."""
        return self.size


@dataclass
class ByPolicy:
    """`decide`, once a minute and more often while tasks wait, from the observations of the last minutes. An action is open until its
    optimizers are up.

    Tasks that come are noticed as late as by a server, which looks for them every 30 s.
    """

    policy: ScalingPolicy
    every: float = AT_ONCE.total_seconds()
    seen: deque[Observation] = field(default_factory=lambda: deque(maxlen=120))
    past: list[PastAction] = field(default_factory=list)
    looks: list[tuple[float, float, float, int]] = field(default_factory=list)
    noticed: bool = False

    def wanted(self, now: float, group: Group) -> int:
        """Observe the minute, and decide."""
        at = BEGINNING + timedelta(seconds=now)
        self._measure(now, group)
        noticed, self.noticed = self.noticed, bool(group.waiting) and (self.noticed or now % 30 == 0)
        again = looks_again_in(list(self.seen), self.policy.lag) if self.seen else EVERY
        if self.seen and at - self.seen[-1].at < (min(again, SOON) if noticed else again):
            return group.target
        self.seen.append(self._observe(now, at, group))
        if self.past and self.past[-1].is_open and all(each.up_at <= now for each in group.taking):
            self.past[-1] = PastAction(self.past[-1].action, self.past[-1].at, self.policy.digest, Outcome.DONE, at)
        target = Target(group.target, group.world.parallelism)
        found = decide("simulated", list(self.seen), self.policy, target, at, self.past[-100:])
        if isinstance(found, Action):
            self.past.append(PastAction(found, at, self.policy.digest))
            return found.after.instances
        return group.target

    def _measure(self, now: float, group: Group) -> None:
        """Remember a minute of what was used and held, and of what ended."""
        cpu = sum(each.used_by(now) for each in group.workers)
        held = group.held_seconds + sum(now - begun for each in group.live for begun, _, _ in each.running.values())
        self.looks = [*self.looks[-12:], (now, cpu, held, group.ended)]

    def _observe(self, now: float, at: datetime, group: Group) -> Observation:
        up = group.up(now)
        slots = len(up) * group.world.parallelism
        (begun, last_cpu, last_held, last_ended), (_, cpu, held, ended) = self.looks[0], self.looks[-1]
        passed = now - begun
        capacity = slots * passed
        return Observation(
            at,
            len(group.waiting),
            timedelta(seconds=now - min((came for came, _ in group.waiting), default=now)),
            group.running(),
            slots,
            idle_share=min(max(1 - (held - last_held) / capacity, 0.0), 1.0) if capacity else None,
            ended=ended - last_ended,
            cpu_share=min(max((cpu - last_cpu) / (len(up) * group.world.cores * passed), 0.0), 1.0) if capacity else None,
            up=len(up),
            starting=len(group.taking) - len(up),
            draining=len(group.live) - len(group.taking),
        )


@dataclass
class Hpa:
    """Kubernetes' HorizontalPodAutoscaler with its default behaviour.

    It looks every 15 s. Within a tenth of the target it does nothing. It grows at once, by as much as there is or by four pods, whichever
    is more, in 15 s. It shrinks to the highest number that it found right in the last 300 s. Pods that are not ready count as using
    nothing when it grows, and are left out when it shrinks.

    With `tasks`, the metric is the tasks in hand for each pod, as an external metric is, else the CPU of the last 30 s.
    """

    target: float
    tasks: bool = False
    every: float = 15.0
    found: deque[tuple[float, int]] = field(default_factory=deque)
    used: deque[tuple[float, float]] = field(default_factory=deque)

    def wanted(self, now: float, group: Group) -> int:
        """The number that its documentation gives."""
        current, ready = len(group.taking), len(group.up(now))
        raw = self._raw(now, group, current, ready)
        desired = min(max(raw, group.world.bounds.least), group.world.bounds.most)
        self.found.append((now, desired))
        while self.found[0][0] < now - 300:
            self.found.popleft()
        if desired > current:
            return min(desired, current + max(current, 4))
        return min(max(number for _, number in self.found), current)

    def _raw(self, now: float, group: Group, current: int, ready: int) -> int:
        if self.tasks:
            each = (len(group.waiting) + group.running()) / max(current, 1)
            ratio = each / self.target
            return current if abs(ratio - 1) <= 0.1 else ceil(ratio * current - 1e-9)
        cpu = sum(each.used_by(now) for each in group.workers)
        self.used.append((now, cpu))
        while len(self.used) > 3:
            self.used.popleft()
        passed = now - self.used[0][0]
        if not ready or not passed:
            return current
        use = (cpu - self.used[0][1]) / passed / group.world.cores
        ratio = use / ready / self.target
        if ratio > 1 and current > ready:
            ratio = use / current / self.target
            if ratio < 1:
                return current
            return current if ratio <= 1.1 else ceil(ratio * current - 1e-9)
        return current if abs(ratio - 1) <= 0.1 else ceil(ratio * ready - 1e-9)
