"""`add_group_job` and `change_group_job` do what the commands of `group` do, and `drain_group_job` lets a group's optimizers end."""

from __future__ import annotations

from typing import Any

import dagster as dg

from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import OptimizerState, Registration
from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.executed import failure
from compaction_pipeline_tests.opened import OpenedServices


def run(instance: dg.DagsterInstance, job: str, **config: Any) -> dg.ExecuteInProcessResult:
    run_config = {"ops": {job.removesuffix("_job"): {"config": config}}}
    return defs.resolve_job_def(job).execute_in_process(instance=instance, run_config=run_config, raise_on_error=False)


def test_a_group_is_made_and_changed_and_the_rest_stays(services: OpenedServices, instance: dg.DagsterInstance) -> None:
    made = {"group": "heavy", "capacity": 50, "order": "QUOTA", "properties": {"instances": "2", "parallelism": "4"}}
    assert run(instance, "add_group_job", **made).success
    group = services.manage_groups.group("heavy")
    assert group == ResourceGroup("heavy", properties={"instances": "2", "parallelism": "4"}, queue=CompactionQueue(50, QueueOrder.QUOTA))
    assert run(instance, "change_group_job", group="heavy", capacity=60, properties={"instances": ""}).success
    assert services.manage_groups.group("heavy") == ResourceGroup(
        "heavy", properties={"parallelism": "4"}, queue=CompactionQueue(60, QueueOrder.QUOTA)
    )


def test_a_bad_value_a_taken_name_and_an_unknown_group_end_the_run_with_the_rule(
    services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    assert "group default exists already" in failure(run(instance, "add_group_job", group="default"))
    assert "must be from 1 to" in failure(run(instance, "add_group_job", group="heavy", capacity=0))
    for job in ("change_group_job", "drain_group_job"):
        assert "group 'nothing' does not exist" in failure(run(instance, job, group="nothing"))
    assert [group.name for group in services.manage_groups.groups()] == ["default"]


def test_only_the_optimizers_of_the_group_are_asked_to_end(services: OpenedServices, instance: dg.DagsterInstance) -> None:
    services.manage_groups.add(ResourceGroup("heavy"))
    for group in ("heavy", "heavy", "default"):
        services.serve_optimizers.register(Registration(group, "host", "1", "1.0", MERGE_VERSION, 1))
    assert run(instance, "drain_group_job", group="heavy").success
    states = sorted((one.group, one.state) for one in services.serve_optimizers.optimizers())
    assert states == [
        ("default", OptimizerState.RUNNING),
        ("heavy", OptimizerState.DRAINING),
        ("heavy", OptimizerState.DRAINING),
    ]
