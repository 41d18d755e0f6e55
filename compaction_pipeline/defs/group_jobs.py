"""The jobs that make and change resource groups, and that let their optimizers end, as the commands `group` and `optimizer` do."""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
from dataclasses import replace

import dagster as dg
from pydantic import Field

from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.names import ADD_GROUP_JOB, CHANGE_GROUP_JOB, DRAIN_GROUP_JOB, GROUP
from compaction_pipeline.defs.refusals import refused
from compaction_pipeline.defs.resources import Compaction


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


@dg.op(description="Makes a resource group.", out=dg.Out(dg.Nothing))
def add_group(context: dg.OpExecutionContext, config: GroupConfig, compaction: Compaction) -> None:
    """Make a group. The run fails when the name is taken or a value breaks its rule."""
    try:
        made = compaction.services().manage_groups.add(config.applied_to(ResourceGroup(config.group)))
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(f"made {_in_words(made)}")


@dg.op(description="Changes a resource group.", out=dg.Out(dg.Nothing))
def change_group(context: dg.OpExecutionContext, config: GroupConfig, compaction: Compaction) -> None:
    """Change what the configuration names, and keep the rest. The run fails when no such group exists or a value breaks its rule."""
    groups = compaction.services().manage_groups
    try:
        changed = groups.change(config.applied_to(groups.group(config.group)))
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(f"changed {_in_words(changed)}")


@dg.op(description="Lets every optimizer of a resource group end after its running tasks.", out=dg.Out(dg.Nothing))
def drain_group(context: dg.OpExecutionContext, config: DrainConfig, compaction: Compaction) -> None:
    """Ask every live optimizer of a group to take no more tasks. The run fails when no such group exists."""
    services = compaction.services()
    try:
        group = services.manage_groups.group(config.group)
        live = [one for one in services.serve_optimizers.optimizers(live=True) if one.group == group.name]
        for optimizer in live:
            _drain(context, compaction, optimizer.optimizer_id)
    except CompactionError as error:
        raise refused(error) from None
    context.log.info(
        f"{count_text(len(live), 'optimizer')} of group {group.name} asked to end; runs of compact_job take what waits after them"
    )


def _drain(context: dg.OpExecutionContext, compaction: Compaction, optimizer_id: str) -> None:
    try:
        compaction.services().serve_optimizers.drain(optimizer_id)
        context.log.info(f"{optimizer_id} ends after its running tasks")
    except NotFoundError:
        context.log.info(f"{optimizer_id} has ended by itself")


def _in_words(group: ResourceGroup) -> str:
    properties = "".join(f", {key}={value}" for key, value in sorted(masked_properties(group.properties).items()))
    return f"group {group.name}: capacity {group.queue.capacity}, order {group.queue.order.value}, container {group.container}{properties}"


_TAGS = {"compaction/group": GROUP}


@dg.job(
    name=ADD_GROUP_JOB,
    executor_def=dg.in_process_executor,
    tags=_TAGS,
    description="Makes a resource group: a queue with a capacity and an order, for tables that name it in 'self-optimizing.group'.",
)
def add_group_job() -> None:
    add_group()


@dg.job(
    name=CHANGE_GROUP_JOB,
    executor_def=dg.in_process_executor,
    tags=_TAGS,
    description="Changes what its configuration names of a resource group, and keeps the rest. Tasks that wait already stay in the queue.",
)
def change_group_job() -> None:
    change_group()


@dg.job(
    name=DRAIN_GROUP_JOB,
    executor_def=dg.in_process_executor,
    tags=_TAGS,
    description=(
        "Lets the optimizers of a resource group end after their running tasks, for example before an upgrade. While none runs, runs of "
        "`compact_job` take the tasks of the group. A container that keeps instances running starts new ones."
    ),
)
def drain_group_job() -> None:
    drain_group()
