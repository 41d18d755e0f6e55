"""Says how a target changes the properties of a group's optimizers, and which parts of a policy a container can carry out.

A container is told of a size by the properties that people use too. So optimizers of another size are outdated, and are replaced as they
are after a person's change. Merges run in Python workers: more memory for a Spark application is memory beside the heap of its executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from math import ceil

from compaction_pipeline.core.capacity.scaling.policy import (
    ENABLED,
    MAX_MEMORY,
    MAX_SLOT_CORES,
    MIN_MEMORY,
    SLOTS_OF_ONE,
    ScalingPolicy,
    is_enabled,
    policy_of,
)
from compaction_pipeline.core.capacity.scaling.record import Scale
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import (
    CPU,
    MASTER,
    Container,
    ContainerKind,
    cores_of,
    cpu_of,
    memory_of,
    spark_properties,
)
from compaction_pipeline.core.queue.group import INSTANCES, MEMORY, PARALLELISM, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.spark_memory import MIB, heap_of, most_executors, overhead_of

OVERHEAD = "spark.executor.memoryOverhead"
TASK_CORES, EXECUTOR_CORES = "spark.task.cpus", "spark.executor.cores"
_RECKONING = "memory with overhead"
"""It stands in the digest of groups whose memory is scaled, because targets that were stored before counted heaps alone."""
_LEAST_OVERHEAD = 384 * MIB
"""The least that an executor has beside its heap after its memory was scaled."""


def group_policy(group: ResourceGroup, container: Container) -> ScalingPolicy | None:
    """Return the policy of a group of this container; None when it has none that is enabled.

    Raises ConfigError for a value that breaks its rule, and for what the container cannot carry out.
    """
    kind = container.kind
    if is_enabled(group.properties):
        # Whoever corrects a value that the container refuses in any case would be refused once more.
        _check_kind(group, kind)
    policy = policy_of(group.name, group.properties)
    if policy is None:
        return None
    if policy.memory is not None and not group.number(MEMORY) and kind is ContainerKind.KUBERNETES:
        raise ConfigError(f"'{MAX_MEMORY}' of group {group.name} is set but it lacks '{MEMORY}': set it to the bytes to begin with")
    # A container without properties stands for one that is not known on this host.
    if policy.memory is not None and container.is_submitted and container.properties:
        least = _least_memory(container, replace(group, properties={**group.properties, PARALLELISM: str(policy.slots_of_one)}))
        if policy.memory.least < least:
            raise ConfigError(
                f"'{MIN_MEMORY}' of group {group.name} is {policy.memory.least} but must be at least {least}: the heaps of the driver and "
                f"of {policy.slots_of_one} executors, each with {_LEAST_OVERHEAD} bytes beside it, are never made smaller"
            )
    return policy


def _check_kind(group: ResourceGroup, kind: ContainerKind) -> None:
    """Raise ConfigError for what containers of this kind cannot carry out."""
    if kind is ContainerKind.EXTERNAL:
        raise ConfigError(
            f"group {group.name} cannot have '{ENABLED}', because people or another system start the optimizers of container "
            f"{group.container}, and two scalers must never meet; name a container of another kind, or remove the property"
        )
    keys = [key for key in (MIN_MEMORY, MAX_MEMORY, MAX_SLOT_CORES) if key in group.properties]
    if keys and kind is ContainerKind.LOCAL:
        named, them = " and ".join(f"'{key}'" for key in keys), "them" if len(keys) > 1 else "it"
        raise ConfigError(
            f"{named} of group {group.name} {'are' if len(keys) > 1 else 'is'} set, but processes of container {group.container} on this "
            f"host take the memory and the cores that they need, so there is nothing to scale; remove {them}"
        )


def own_target(group: ResourceGroup, container: Container, policy: ScalingPolicy) -> Target:
    """Return what the group's own properties ask for, as near to the policy's bounds as whole optimizers come."""
    slots = policy.slots_of_one
    least = ceil(policy.bounds.least / slots)
    instances = max(least, min(group.number(INSTANCES) or 0, policy.bounds.most // slots))
    shaped = replace(group, properties={**group.properties, PARALLELISM: str(slots)})
    cores = None if policy.most_slot_cores is None else _own_cores(shaped, container, slots)
    return Target(instances, slots, memory_of(container, shaped), cores)


def _own_cores(group: ResourceGroup, container: Container, slots: int) -> float:
    """The cores of a slot as people say them."""
    if container.is_submitted:
        given = spark_properties(container, group).get(TASK_CORES, "1")
        return float(given) if given.isascii() and given.isdigit() else 1.0
    return cores_of(cpu_of(container, group)) / slots


def sized(group: ResourceGroup, container: Container, target: Target) -> ResourceGroup:
    """Return the group with the properties that start optimizers of a target. Its number of optimizers is not among them."""
    properties = {**group.properties, PARALLELISM: str(target.parallelism)}
    shaped = replace(group, properties=properties)
    if target.memory_bytes and target.memory_bytes != memory_of(container, shaped):
        properties |= _memory(container, shaped, target)
    if target.slot_cores is not None:
        properties |= _cores(container, target.slot_cores, target.parallelism)
    return replace(group, properties=properties)


def person_digest(group: ResourceGroup) -> str:
    """Return 16 hexadecimal digits that change when a person changes the container or a property of the group."""
    return _digest([group.container, dict(group.properties), *([_RECKONING] if MAX_MEMORY in group.properties else [])])


def size_digest(group: ResourceGroup) -> str:
    """Return 16 hexadecimal digits that change when a person changes how many optimizers the group begins with, or how large they are."""
    keys = (INSTANCES, PARALLELISM, SLOTS_OF_ONE, MEMORY, "spark.driver.memory", "spark.executor.memory", OVERHEAD)
    return _digest([group.container, *(group.properties.get(key, "") for key in keys)])


def count_there(group: str, optimizers: Iterable[Optimizer]) -> int:
    """Return how many optimizers of a group a container has started that are to stay."""
    stays = (OptimizerState.STARTING, OptimizerState.RUNNING)
    return sum(each.group == group and each.is_managed and each.state in stays for each in optimizers)


def wanted_now(group: ResourceGroup, container: Container, policy: ScalingPolicy, scale: Scale | None, there: int) -> Scale:
    """Return what the group is to have now: what is stored, unless a person has changed the group since.

    `there` is how many optimizers the group has. One that gets a policy keeps them, as far as the policy allows, until it is decided
    otherwise: whoever enables a policy may take away `instances` in the same change.
    """
    if scale is not None and scale.person == person_digest(group):
        return scale
    person, size = person_digest(group), size_digest(group)
    if scale is not None and scale.person == _digest([group.container, dict(group.properties)]):
        good = _with_overhead(group, container, scale.good)
        return replace(scale.to(replace(good, instances=scale.target.instances), good=good), person=person)
    if scale is None or not scale.is_on or scale.size != size:
        target = own_target(group, container, policy)
        if scale is None or not scale.is_on:
            target = replace(target, instances=max(target.instances, min(there, policy.bounds.most // target.parallelism)))
        return Scale(group.name, 1 if scale is None else scale.revision + 1, target, target, person, size)
    # An action that is open ends, and so a size that nobody has seen work goes with it.
    return replace(scale.to(replace(scale.good, instances=scale.target.instances)), person=person)


def _with_overhead(group: ResourceGroup, container: Container, target: Target) -> Target:
    """A target of the release before 2026-11-28, whose memory was that of the heaps alone, as it is counted now."""
    if not container.is_submitted or MEMORY in group.properties or not target.memory_bytes:
        return target
    shaped = replace(group, properties={**group.properties, PARALLELISM: str(target.parallelism)})
    given = spark_properties(container, shaped)
    heaps = heap_of(given, "driver") + heap_of(given, "executor") * target.parallelism
    return replace(target, memory_bytes=target.memory_bytes + memory_of(container, shaped) - heaps)


def _digest(parts: object) -> str:
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _least_memory(container: Container, group: ResourceGroup) -> int:
    """The least bytes that an optimizer of Spark may have: heaps do not change."""
    given, executors = spark_properties(container, group), group.number(PARALLELISM) or 1
    return heap_of(given, "driver") + (heap_of(given, "executor") + _LEAST_OVERHEAD) * executors


def _memory(container: Container, group: ResourceGroup, target: Target) -> Mapping[str, str]:
    if not container.is_submitted:
        return {MEMORY: str(target.memory_bytes)}
    if MAX_MEMORY not in group.properties:
        # An optimizer with more slots has more executors. Only what a person declared in all must follow.
        return {MEMORY: str(target.memory_bytes)} if MEMORY in group.properties else {}
    undeclared = replace(group, properties={key: value for key, value in group.properties.items() if key != MEMORY})
    given = spark_properties(container, undeclared)
    before = overhead_of(given, "executor", container.properties.get(MASTER, ""))
    more = (target.memory_bytes - memory_of(container, group)) // most_executors(given, target.parallelism)
    least = memory_of(container, replace(undeclared, properties={**undeclared.properties, OVERHEAD: f"{_LEAST_OVERHEAD // MIB}m"}))
    # What is charged to a team is what the cluster gives.
    return {MEMORY: str(max(target.memory_bytes, least)), OVERHEAD: f"{max(_LEAST_OVERHEAD, before + more) // MIB}m"}


def _cores(container: Container, slot_cores: float, slots: int) -> Mapping[str, str]:
    if container.is_submitted:
        whole = str(ceil(slot_cores))
        return {TASK_CORES: whole, EXECUTOR_CORES: whole}
    return {CPU: f"{ceil(1000 * slot_cores * slots)}m"}
