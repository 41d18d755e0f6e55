"""The rules by which the load asks for more or less of each kind, from observations alone. Each says in words why it asks for nothing.

What nobody knows (None) never leads to an action that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from compaction_pipeline.core.capacity.scaling.action import Action, ActionKind, Direction
from compaction_pipeline.core.capacity.scaling.demand import (
    BUSY,
    HIGH,
    IDLE,
    LOW,
    MEASURED_OVER,
    STALE,
    Demand,
    apart,
    demand_of,
    newest,
    of_span,
)
from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.policy import Bounds, ScalingPolicy
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.words import bytes_text, count_text, duration_text

STEP = 16
"""Without a step in the policy, a group may at least get or lose so many optimizers at once."""
CORE_USED = 0.9
"""An attempt that uses more of its slot's cores than this is held up by them."""
MEMORY_NEAR, MEMORY_FAR, MEMORY_GOAL = 0.9, 0.4, 0.65
"""Above the first share of the reserve more memory is given, below the second less, so that the third is used."""
MEMORY_GROWTH = 1.5
MEMORY_KILLS_OF, MEMORY_LOW_FOR, CORES_LOW_FOR = timedelta(minutes=30), timedelta(hours=1), timedelta(days=1)
MEMORY_KNOWN = 10
"""Less memory is given when at least so many minutes told what is needed."""
_ROUND_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a decision is made from. `last` are the newest observations, the last three or none. `bounds` are those that hold now."""

    observations: Sequence[Observation]
    last: Sequence[Observation]
    policy: ScalingPolicy
    target: Target
    bounds: Bounds
    now: datetime

    @staticmethod
    def of(observations: Sequence[Observation], policy: ScalingPolicy, target: Target, now: datetime) -> Seen:
        """Look at the newest observations, and at the bounds of this moment."""
        return Seen(observations, newest(observations, now), policy, target, policy.bounds_at(now), now)

    @property
    def fresh(self) -> Observation | None:
        """The newest observation; None when nobody knows what the group does now."""
        found = max((each for each in self.observations if each.at <= self.now), key=lambda each: each.at, default=None)
        return found if found is not None and self.now - found.at <= STALE else None

    @property
    def is_behind(self) -> bool:
        """Whether tasks have waited too long in each of the last observations."""
        return bool(self.last) and all(each.waiting > 0 and each.oldest_wait > self.policy.lag for each in self.last)

    @property
    def behind_words(self) -> str:
        """For example: 12 tasks wait, the first for 3 min, longer than 1 min in 3 observations."""
        newest = self.last[-1]
        return (
            f"{count_text(newest.waiting, 'task')} {'waits' if newest.waiting == 1 else 'wait'}, the first for "
            f"{duration_text(newest.oldest_wait)}, longer than {duration_text(self.policy.lag)} in {len(self.last)} observations"
        )

    @property
    def cpu_is_low(self) -> bool:
        """Whether the CPU is known to be low in each of the last observations."""
        return bool(self.last) and all(each.cpu_share is not None and each.cpu_share < LOW for each in self.last)

    @property
    def demand(self) -> Demand:
        """What the load of the last observations needs."""
        earlier = [each for each in self.observations if self.now - MEASURED_OVER < each.at <= self.now]
        return demand_of(self.last, earlier, self.target.slots)

    @property
    def idle(self) -> Sequence[Observation]:
        """The observations of the policy's `idle`; none when they are not all there or a task waited in one."""
        found = of_span(self.observations, self.policy.idle, self.now)
        return () if any(each.waiting for each in found) else found

    def within(self, instances: int) -> int:
        """So many optimizers, kept within the bounds and the step."""
        target = self.target
        step = self.policy.step or max(target.instances, STEP)
        wanted = min(max(instances, target.instances - step), target.instances + step)
        return min(max(wanted, least_instances(self.bounds, target.parallelism)), self.bounds.most // target.parallelism)


Rule = Callable[[Seen], "Action | str"]


def looks_back(policy: ScalingPolicy) -> timedelta:
    """The time whose observations decide under a policy. Those of a day only count where cores are scaled, or memory, which is not taken
    away while a kill for it is seen."""
    has_sizes = policy.most_slot_cores is not None or policy.memory is not None
    return max(policy.idle, CORES_LOW_FOR if has_sizes else MEMORY_LOW_FOR) + MEASURED_OVER


def least_instances(bounds: Bounds, parallelism: int) -> int:
    """The fewest optimizers that have the least slots, without more than the most."""
    return min(-(-bounds.least // parallelism), bounds.most // parallelism)


def changed(seen: Seen, kind: ActionKind, after: Target, trigger: str) -> Action:
    """The action that leads to a target of another size or number. Its direction is out when any part grows."""
    before = seen.target
    grows = after.slots > before.slots or after.memory_bytes * after.instances > before.memory_bytes * before.instances
    more_cores = (after.slot_cores or 0) > (before.slot_cores or 0)
    return Action(kind, Direction.OUT if grows or more_cores else Direction.IN, before, after, trigger)


def memory_out(seen: Seen) -> Action | str:
    """More memory when attempts were killed for it, or when the peak comes near the reserve."""
    memory, bounds = seen.target.memory_bytes, seen.policy.memory
    if bounds is None or not memory:
        return "memory is not scaled" if bounds is None else "the memory of an optimizer is not known"
    kills = sum(each.memory_kills for each in seen.observations if seen.now - MEMORY_KILLS_OF < each.at <= seen.now)
    peaks = [each.memory_share for each in seen.last if each.memory_share is not None]
    if not kills and not (peaks and max(peaks) > MEMORY_NEAR):
        return "memory suffices"
    wanted = min(_rounded(memory * MEMORY_GROWTH), bounds.most)
    why = f"{count_text(kills, 'kill')} for memory in {duration_text(MEMORY_KILLS_OF)}" if kills else f"{max(peaks):.0%} of memory needed"
    if wanted <= memory:
        return f"{why}, but {bytes_text(memory)} is the most memory that the policy allows"
    trigger = f"{why}: {bytes_text(memory)} → {bytes_text(wanted)}"
    return changed(seen, ActionKind.MEMORY, replace(seen.target, memory_bytes=wanted), trigger)


def memory_in(seen: Seen) -> Action | str:
    """Less memory when no peak of an hour came near what would be left."""
    memory, bounds = seen.target.memory_bytes, seen.policy.memory
    if bounds is None or not memory:
        return "memory is not scaled" if bounds is None else "the memory of an optimizer is not known"
    span = of_span(seen.observations, MEMORY_LOW_FOR, seen.now)
    peaks = [each.memory_share for each in apart(span) if each.memory_share is not None]
    if len(peaks) < MEMORY_KNOWN or any(each.memory_kills for each in seen.observations) or max(peaks) >= MEMORY_FAR:
        return "memory is used, or too little is known of it"
    wanted = max(_rounded(memory * max(max(peaks) / MEMORY_GOAL, 0.5)), bounds.least)
    if wanted >= memory:
        return "less memory is not allowed, or would not suffice"
    trigger = f"at most {max(peaks):.0%} of memory needed in {duration_text(MEMORY_LOW_FOR)}: {bytes_text(memory)} → {bytes_text(wanted)}"
    return changed(seen, ActionKind.MEMORY, replace(seen.target, memory_bytes=wanted), trigger)


def parallelism_out(seen: Seen) -> Action | str:
    """More slots of the same cores, when tasks wait for slots while slots wait for storage."""
    most, slots = seen.policy.most_slots_of_one, seen.target.parallelism
    if most is None or not seen.target.instances:
        return "parallelism is not scaled" if most is None else "there is no optimizer"
    if not seen.is_behind or not seen.cpu_is_low:
        return "tasks do not wait, or the CPU is not known to be low"
    hosts = [each.host_cpu_share for each in seen.last]
    if any(share is None or share >= HIGH for share in hosts):
        return "the CPU of the host is high or not known"
    # Each further slot uses as much CPU as those that are there, on the optimizer and on its host.
    cpu = max(max(each.cpu_share or 0.0, each.host_cpu_share or 0.0) for each in seen.last)
    room = min(most, 2 * slots, seen.bounds.most // seen.target.instances, int(slots * HIGH / cpu) if cpu > 0 else most)
    wanted = min(max(seen.demand.units(seen.target.instances), slots), room)
    after = with_slots(seen.target, wanted)
    if wanted <= slots or _breaks(after, seen.policy):
        return f"parallelism {slots} is the most that the policy, the memory and the CPU of the host allow, or it suffices"
    trigger = f"{seen.behind_words}, and {cpu:.0%} of the CPU is used: parallelism {slots} → {wanted}"
    return changed(seen, ActionKind.PARALLELISM, after, trigger)


def parallelism_in(seen: Seen) -> Action | str:
    """Fewer slots when they are idle, down to those that an optimizer began with."""
    slots, least = seen.target.parallelism, seen.policy.slots_of_one
    if seen.policy.most_slots_of_one is None or slots <= least or not seen.target.instances:
        return "parallelism is not scaled, or is at its least"
    idle = seen.idle
    if not idle or _use(idle, seen.target.slots) >= IDLE:
        return "slots are not idle"
    fewest = -(-seen.bounds.least // max(seen.target.instances, 1))
    wanted = max(_whole(_busiest(idle) / BUSY / max(seen.target.instances, 1)), least, fewest)
    if wanted >= slots:
        return "slots are not idle enough"
    trigger = f"{_idle_words(seen, idle)}: parallelism {slots} → {wanted}"
    return changed(seen, ActionKind.PARALLELISM, with_slots(seen.target, wanted), trigger)


def cores_out(seen: Seen) -> Action | str:
    """One more core a slot when attempts use all that they have, and tasks wait."""
    most, cores = seen.policy.most_slot_cores, seen.target.slot_cores
    if most is None or cores is None:
        return "cores are not scaled" if most is None else "the cores of a slot are not known"
    used = [each.attempt_cores for each in seen.last]
    if not seen.is_behind or any(each is None or each <= CORE_USED * cores for each in used):
        return "tasks do not wait, or attempts do not use the cores that they have"
    if cores + 1 > most:
        return f"{cores:g} cores a slot are the most that the policy allows"
    trigger = f"{seen.behind_words}, and attempts use more than {CORE_USED * cores:.1f} cores: {cores:g} → {cores + 1:g} a slot"
    return changed(seen, ActionKind.CORES, replace(seen.target, slot_cores=cores + 1), trigger)


def cores_in(seen: Seen) -> Action | str:
    """One core less a slot when no attempt of a day needed it."""
    cores = seen.target.slot_cores
    if seen.policy.most_slot_cores is None or cores is None or cores <= 1:
        return "cores are not scaled, or are at their least"
    used = [each.attempt_cores for each in of_span(seen.observations, CORES_LOW_FOR, seen.now) if each.attempt_cores is not None]
    if not used or max(used) >= HIGH * (cores - 1):
        return "attempts use the cores that they have, or nobody knows it"
    trigger = f"attempts used at most {max(used):.1f} cores in a day: {cores:g} → {cores - 1:g} a slot"
    return changed(seen, ActionKind.CORES, replace(seen.target, slot_cores=cores - 1), trigger)


def first_out(seen: Seen) -> Action | str:
    """The first optimizer when a task waits. One observation says enough: nothing that runs could take the task."""
    newest = seen.fresh
    if seen.target.instances or newest is None or not newest.waiting:
        return "no task waits, or there is an optimizer"
    # Nobody knows yet how long they take, so one optimizer tells.
    waiting = newest.waiting
    return _more(seen, 1, f"{count_text(waiting, 'task')} {'waits' if waiting == 1 else 'wait'}, and there is no optimizer")


def optimizers_out(seen: Seen) -> Action | str:
    """More optimizers when tasks wait, and more slots on the present ones would not help or are not possible."""
    target = seen.target
    if not target.instances and seen.last[-1].waiting:
        return first_out(seen)
    if not seen.is_behind:
        return "no task has waited for too long"
    if seen.last[-1].starting:
        return f"of the last change, {count_text(seen.last[-1].starting, 'optimizer')} still must start"
    wanted = seen.demand.units(target.parallelism)
    if wanted <= target.instances:
        return f"{count_text(target.slots, 'slot')} work off in time what waits"
    return _more(seen, wanted, seen.behind_words)


def _more(seen: Seen, wanted: int, why: str) -> Action | str:
    instances = seen.within(wanted)
    if instances <= seen.target.instances:
        return f"{why}, but {count_text(seen.bounds.most, 'slot')} are the most that are allowed now"
    trigger = f"{why}: {seen.target.instances} → {count_text(instances, 'optimizer')}"
    return changed(seen, ActionKind.OPTIMIZERS, replace(seen.target, instances=instances), trigger)


def optimizers_in(seen: Seen) -> Action | str:
    """Fewer optimizers when the queue was empty for the whole of `idle`, and those that stay carry what was busy."""
    target, idle = seen.target, seen.idle
    if not target.instances or not idle:
        return f"the queue was not empty for {duration_text(seen.policy.idle)}"
    if idle[-1].starting or idle[-1].draining:
        return "an optimizer of the last change starts or drains still"
    if _use(idle, target.slots) >= IDLE:
        return f"{_busiest(idle):.1f} of {count_text(target.slots, 'slot')} were busy"
    if _busiest(idle[len(idle) // 2 :]) < IDLE * _busiest(idle):
        # Another step would have to wait for the whole cooldown, so it is better to wait for the end of the fall.
        return "the use of slots still falls"
    instances = seen.within(_whole(_busiest(idle) / BUSY / target.parallelism))
    if instances >= target.instances:
        return f"{count_text(target.instances, 'optimizer')} are the fewest that carry the load or that are allowed now"
    trigger = f"{_idle_words(seen, idle)}: {target.instances} → {count_text(instances, 'optimizer')}"
    return changed(seen, ActionKind.OPTIMIZERS, replace(target, instances=instances), trigger)


OUT_RULES: Mapping[ActionKind, Rule] = {
    ActionKind.MEMORY: memory_out,
    ActionKind.PARALLELISM: parallelism_out,
    ActionKind.CORES: cores_out,
    ActionKind.OPTIMIZERS: optimizers_out,
}
IN_RULES: Mapping[ActionKind, Rule] = {
    ActionKind.MEMORY: memory_in,
    ActionKind.PARALLELISM: parallelism_in,
    ActionKind.CORES: cores_in,
    ActionKind.OPTIMIZERS: optimizers_in,
}
"""The rules, in the order of precedence."""


def with_slots(target: Target, parallelism: int) -> Target:
    """The target with another parallelism. Each slot keeps its part of the memory."""
    return replace(target, parallelism=parallelism, memory_bytes=-(-target.memory_bytes * parallelism // target.parallelism))


def _breaks(target: Target, policy: ScalingPolicy) -> bool:
    """Whether an optimizer of this target would have more memory than the policy allows."""
    return policy.memory is not None and target.memory_bytes > policy.memory.most


def _busiest(idle: Sequence[Observation]) -> float:
    """The most slots that were busy at once."""
    return max(max(each.busy_slots, float(each.running)) for each in idle)


def _use(idle: Sequence[Observation], slots: int) -> float:
    return _busiest(idle) / slots


def _idle_words(seen: Seen, idle: Sequence[Observation]) -> str:
    return (
        f"the queue was empty and at most {_busiest(idle):.1f} of {count_text(seen.target.slots, 'slot')} were busy for "
        f"{duration_text(seen.policy.idle)}"
    ).replace(".0 of", " of")


def _whole(count: float) -> int:
    """So many are needed. A sum of parts may be a little more than a whole number that it stands for."""
    return ceil(count - 1e-6)


def _rounded(memory: float) -> int:
    return ceil(memory / _ROUND_BYTES) * _ROUND_BYTES
