"""The jobs that make and change resource groups, and that let their optimizers end, as the commands `group` and `optimizer` do."""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
from dataclasses import replace

import dagster as dg
from pydantic import Field

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.names import ADD_GROUP_JOB, CHANGE_GROUP_JOB, DRAIN_GROUP_JOB, Names
from compaction_pipeline.defs.op_jobs import op_job
from compaction_pipeline.defs.refusals import refused
from compaction_pipeline.defs.resources import services_of


class GroupConfig(dg.Config):
    """A group, and what is to be different about it. What is left out has its default in a new group, and stays as it is in another."""

    group: str = Field(description="The name of the group, which tables name in 'self-optimizing.group'.")
    capacity: int | None = Field(
        default=None, description="How many tasks may be planned and not merged yet. Plans wait when the queue is full."
    )
    order: QueueOrder | None = Field(
        default=None,
        description="Which waiting task is next. FIFO: the oldest. PRIORITY: by the priorities of tables, which waiting makes up for. "
        "QUOTA: one of the table that used least of its quota in the last hour.",
    )
    container: str | None = Field(default=None, description="What starts the optimizers of the group; `external` means that people do.")
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Properties: instances, min-instances, parallelism, memory (in bytes), or of the container. An empty text removes one.",
    )

    def applied_to(self, group: ResourceGroup) -> ResourceGroup:
        """The group with everything that this configuration says."""
        queue = CompactionQueue(self.capacity if self.capacity is not None else group.queue.capacity, self.order or group.queue.order)
        properties = {key: value for key, value in {**group.properties, **self.properties}.items() if value}
        return replace(group, container=self.container or group.container, properties=properties, queue=queue)


class DrainConfig(dg.Config):
    """Whose optimizers end."""

    group: str = Field(description="The name of the group.")


def add_group_job(names: Names) -> dg.JobDefinition:
    """The job that makes a group."""

    def add_group(context: dg.OpExecutionContext, config: GroupConfig) -> None:
        _add_group(context, config, services_of(names, context))

    return op_job(
        names,
        ADD_GROUP_JOB,
        add_group,
        "Makes a resource group.",
        "Makes a resource group: a queue with a capacity and an order, for tables that name it in 'self-optimizing.group'.",
    )


def _add_group(context: dg.OpExecutionContext, config: GroupConfig, services: Services) -> None:
    """Make a group. The run fails when the name is taken or a value breaks its rule."""
    try:
        made = services.manage_groups.add(config.applied_to(ResourceGroup(config.group)))
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(f"made {_in_words(made)}")


def change_group_job(names: Names) -> dg.JobDefinition:
    """The job that changes a group."""

    def change_group(context: dg.OpExecutionContext, config: GroupConfig) -> None:
        _change_group(context, config, services_of(names, context))

    return op_job(
        names,
        CHANGE_GROUP_JOB,
        change_group,
        "Changes a resource group.",
        "Changes what its configuration names of a resource group, and keeps the rest. Tasks that wait already stay in the queue.",
    )


def _change_group(context: dg.OpExecutionContext, config: GroupConfig, services: Services) -> None:
    """Change what the configuration names, and keep the rest. The run fails when no such group exists or a value breaks its rule."""
    groups = services.manage_groups
    try:
        changed = groups.edit(config.group, config.applied_to)
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(f"changed {_in_words(changed)}")


def drain_group_job(names: Names) -> dg.JobDefinition:
    """The job that lets the optimizers of a group end."""

    def drain_group(context: dg.OpExecutionContext, config: DrainConfig) -> None:
        _drain_group(context, config, services_of(names, context))

    return op_job(
        names,
        DRAIN_GROUP_JOB,
        drain_group,
        "Lets every optimizer of a resource group end after its running tasks.",
        "Lets the optimizers of a resource group end after their running tasks, for example before an upgrade. While none runs, runs of "
        "`compact_job` take the tasks of the group. A container that keeps instances running starts new ones.",
    )


def _drain_group(context: dg.OpExecutionContext, config: DrainConfig, services: Services) -> None:
    """Ask every live optimizer of a group to take no more tasks. The run fails when no such group exists."""
    try:
        group = services.manage_groups.group(config.group)
        live = [one for one in services.serve_optimizers.optimizers(live=True) if one.group == group.name]
        for optimizer in live:
            _drain(context, services, optimizer.optimizer_id)
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(
        f"{count_text(len(live), 'optimizer')} of group {group.name} asked to end; runs of compact_job take what waits after them"
    )


def _drain(context: dg.OpExecutionContext, services: Services, optimizer_id: str) -> None:
    try:
        services.serve_optimizers.drain(optimizer_id)
        context.log.info(f"{optimizer_id} ends after its running tasks")
    except NotFoundError:
        context.log.info(f"{optimizer_id} has ended by itself")


def _in_words(group: ResourceGroup) -> str:
    properties = "".join(f", {key}={value}" for key, value in sorted(masked_properties(group.properties).items()))
    return f"group {group.name}: capacity {group.queue.capacity}, order {group.queue.order.value}, container {group.container}{properties}"
