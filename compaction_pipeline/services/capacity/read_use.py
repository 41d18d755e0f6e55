"""Tells how well each optimizer is used, and which command would use it better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from shlex import quote

from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.low_use import LowUseLimits, Size, SlotUse, Use, use_of
from compaction_pipeline.core.capacity.scaling.policy import (
    FLOOR,
    MAX_MEMORY,
    MIN_MEMORY,
    MIN_SLOTS,
    MOST_SLOTS_OF_ONE,
    SLOTS_OF_ONE,
    ScalingPolicy,
    policy_of,
)
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.container import spark_properties
from compaction_pipeline.core.queue.group import INSTANCES, MEMORY, MIN_INSTANCES, PARALLELISM
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.spark_memory import DRIVER_MEMORY, more_driver_memory

NOTED_EVERY = timedelta(minutes=1)
_ONE_MORE = (
    "its slot waits for storage: one more optimizer uses the cores better, because one with COMPACTION_MERGE_ENGINE=in-process has one slot"
)


@dataclass(frozen=True, slots=True)
class OptimizerUse:
    """How well an optimizer is used. `use` is None while it has not lived for the whole window. `command` is "" when none would help.

    `driver_gc_share` is the part of the time of its Spark driver that was garbage collection lately, from 0 to 1; None when unknown.
    `driver_memory` is what `spark.driver.memory` should be, as Spark writes it, because that is too much; "" when nothing is known better.
    """

    optimizer_id: str
    group: str
    slots: int
    use: Use | None
    command: str = ""
    driver_gc_share: float | None = None
    driver_memory: str = ""


class ReadUse:
    """Two verbs: uses, note. The keeper notes from time to time which optimizers are of low use, for the share of a day."""

    def __init__(
        self,
        optimizers: OptimizerStore,
        ledger: CostStore,
        groups: GroupStore,
        clock: Clock,
        limits: LowUseLimits = LowUseLimits(),
        containers: Containers | None = None,
    ) -> None:
        self._optimizers = optimizers
        self._ledger = ledger
        self._groups = groups
        self._clock = clock
        self._limits = limits
        self._containers = containers
        self._noted_at: datetime | None = None

    def uses(self) -> Sequence[OptimizerUse]:
        """Return how well the registered optimizers are used that take tasks, those with the lowest score first."""
        now = self._clock()
        since = now - self._limits.window
        found = [each for each in self._optimizers.optimizers(live=True) if each.state.is_heard]
        used = self._ledger.uses(since, now) if found else {}
        # Optimizers of one host share its cores. One that a cgroup allows fewer has these for itself.
        on_cores: dict[tuple[str, float | None], SlotUse] = defaultdict(SlotUse)
        for each in found:
            on_cores[each.host, each.cores] = on_cores[each.host, each.cores].plus(used.get(each.optimizer_id, SlotUse()))
        uses = [
            self._use(each, used.get(each.optimizer_id, SlotUse()), on_cores[each.host, each.cores] if each.started_at <= since else None)
            for each in found
        ]
        return sorted(uses, key=lambda one: (one.use is None, one.use.score if one.use else 0, one.optimizer_id))

    def note(self) -> None:
        """Note which optimizers are of low use now. When it was called a moment ago, do nothing."""
        now = self._clock()
        if self._noted_at is not None and timedelta(0) <= now - self._noted_at < NOTED_EVERY:
            return
        self._noted_at = now
        judged = {each.optimizer_id: each for each in self.uses() if each.use is not None}
        if judged:
            low = [optimizer_id for optimizer_id, each in judged.items() if each.use is not None and each.use.is_low]
            self._ledger.note_use({optimizer_id: each.group for optimizer_id, each in judged.items()}, low, now)

    def _use(self, optimizer: Optimizer, used: SlotUse, on_cores: SlotUse | None) -> OptimizerUse:
        """`on_cores` is what all optimizers did on its cores; None when it is too young to be judged."""
        size = Size(optimizer.parallelism, optimizer.memory_bytes, optimizer.cores)
        use = None if on_cores is None else use_of(size, used, self._limits, on_cores)
        driver_memory = self._driver_memory(optimizer)
        command = ""
        if use is not None:
            if use.better is not None and use.better.slots > 1 and _has_one_slot_only(optimizer):
                use = replace(use, better=None, remedy=_ONE_MORE)
            changes = self._changes_of_policy(optimizer, use)
            command = self._command(optimizer, use, driver_memory, changes)
            use = use if changes is None else replace(use, remedy=_decided_by_policy(optimizer.group, use.remedy, changes))
        share = None if optimizer.driver_gc is None else optimizer.driver_gc.share
        return OptimizerUse(optimizer.optimizer_id, optimizer.group, optimizer.parallelism, use, command, share, driver_memory)

    def _driver_memory(self, optimizer: Optimizer) -> str:
        """Twice the memory that the driver has, when that is too little; "" where no property of a group sets it."""
        group = self._groups.group(optimizer.group)
        if optimizer.driver_gc is None or not optimizer.driver_gc.needs_memory or group is None or self._containers is None:
            return ""
        container = self._containers.containers().get(optimizer.container)
        if container is None or not container.is_submitted:
            return ""
        return more_driver_memory(spark_properties(container, group))

    def _command(self, optimizer: Optimizer, use: Use, driver_memory: str, changes: Mapping[str, int] | None) -> str:
        """The command that a person runs. A container starts the optimizers of its group again when the group changes."""
        group = f"compaction-pipeline group change {quote(optimizer.group)}"
        if changes is not None:
            return " ".join([group, *(f"-p {name}={value}" for name, value in changes.items())]) if changes else ""
        known = self._groups.group(optimizer.group) if optimizer.is_managed else None
        wanted = known.number(INSTANCES) if known is not None else None
        if use.ends:
            if known is None or not wanted:
                return f"compaction-pipeline optimizer drain {optimizer.optimizer_id}"
            least = known.number(MIN_INSTANCES) or 0
            return f"{group} -p {INSTANCES}={wanted - 1}" + f" -p {MIN_INSTANCES}={wanted - 1}" * (least >= wanted)
        for_driver = f" -p {DRIVER_MEMORY}={driver_memory}" if driver_memory else ""
        if use.remedy == _ONE_MORE:
            memory = f" --memory {optimizer.memory_bytes}" if optimizer.memory_bytes else ""
            by_hand = f"compaction-pipeline optimizer --server … --group {quote(optimizer.group)}{memory}"
            return f"{group} -p {INSTANCES}={(wanted or 0) + 1}" if optimizer.is_managed else by_hand
        if use.better is None:
            return f"{group}{for_driver}" if for_driver else ""
        better = [(PARALLELISM, use.better.slots, optimizer.parallelism), (MEMORY, use.better.memory_bytes, optimizer.memory_bytes)]
        if optimizer.is_managed:
            return " ".join([group, *(f"-p {name}={value}" for name, value, before in better if value != before)]) + for_driver
        # Nobody here knows how it was started, so only what matters is said.
        options = " ".join(f"--{name} {value}" for name, value, _ in better if value)
        return f"compaction-pipeline optimizer --server … --group {quote(optimizer.group)} {options}"

    def _changes_of_policy(self, optimizer: Optimizer, use: Use) -> Mapping[str, int] | None:
        """The properties of the policy of scaling of the optimizer's group that lead to a better use; None when no policy counts."""
        group = self._groups.group(optimizer.group) if optimizer.is_managed else None
        try:
            policy = None if group is None else policy_of(group.name, group.properties)
        except ConfigError:
            # People are told of it where they look at the group.
            return None
        if group is None or policy is None:
            return None
        changes = _policy_changes(policy, optimizer, use)
        least = changes.get(MIN_SLOTS)
        if least is None or FLOOR not in group.properties:
            return changes
        # Both names of this bound may not differ.
        return {name: least for name in (MIN_SLOTS, FLOOR) if name in group.properties}


def _has_one_slot_only(optimizer: Optimizer) -> bool:
    """Whether it seems to merge without Spark, one task at a time: each Spark application that merges tells its id."""
    return optimizer.parallelism == 1 and not optimizer.application


def _decided_by_policy(group: str, remedy: str, changes: Mapping[str, int]) -> str:
    """The remedy with who carries it out. No policy changes the memory that a group names itself."""
    if not remedy or MEMORY in changes:
        return remedy
    within = f", within its {' and '.join(changes)}" if changes else ""
    return f"{remedy}; the policy of scaling of group {group} decides that{within}"


def _policy_changes(policy: ScalingPolicy, optimizer: Optimizer, use: Use) -> Mapping[str, int]:
    """The properties of a policy that lead to a better use. What the policy decides by itself needs no change, and none would last."""
    if use.ends:
        least = policy.bounds.least
        return {MIN_SLOTS: max(0, least - optimizer.parallelism)} if least else {}
    if use.better is None:
        return {}
    changes: dict[str, int] = {}
    slots, memory = use.better.slots, use.better.memory_bytes
    if slots > max(optimizer.parallelism, policy.most_slots_of_one or 0):
        changes[MOST_SLOTS_OF_ONE] = slots
    elif slots < min(optimizer.parallelism, policy.slots_of_one):
        changes[SLOTS_OF_ONE] = slots
    if slots == optimizer.parallelism and memory != optimizer.memory_bytes:
        if policy.memory is None:
            changes[MEMORY] = memory
        elif memory < policy.memory.least:
            changes[MIN_MEMORY] = memory
        elif memory > policy.memory.most:
            changes[MAX_MEMORY] = memory
    return changes
