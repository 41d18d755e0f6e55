"""A node that is no partition yet can be named on the command line of Dagster."""

from __future__ import annotations

import logging

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.errors import DagsterUnknownPartitionError

from compaction_pipeline.definitions import defs
from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.plain_names import COMPACTED_FILES, COMPACTION_RECORDS


def validate(instance: dg.DagsterInstance, partition: str, asset: dg.AssetKey = COMPACTED_FILES) -> None:
    """Do what `dagster asset materialize --partition` does before it starts a run."""
    job = defs.resolve_implicit_global_asset_job_def()
    with partition_loading_context(dynamic_partitions_store=instance) as context:
        job.validate_partition_key(partition, selected_asset_keys={asset}, context=context)


def test_a_node_of_a_table_that_nobody_has_read_becomes_a_partition(lake: Lake, instance: dg.DagsterInstance) -> None:
    for _ in range(2):
        validate(instance, key(3))
    assert list(instance.get_dynamic_partitions("table_nodes")) == [key(3)]


@pytest.mark.parametrize("partition", [key(27), key(1, "ordrs"), "nonsense"])
def test_a_key_that_no_table_has_is_refused_with_the_reason(
    partition: str, lake: Lake, instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(DagsterUnknownPartitionError):
        validate(instance, partition)
    assert f"partition {partition}: " in caplog.text
    assert list(instance.get_dynamic_partitions("table_nodes")) == []


def test_a_table_without_a_record_becomes_a_partition_when_somebody_names_it(
    lake: Lake, instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    validate(instance, "lake.shop.orders", COMPACTION_RECORDS)
    with caplog.at_level(logging.ERROR), pytest.raises(DagsterUnknownPartitionError):
        validate(instance, "lake.shop.ordrs", COMPACTION_RECORDS)
    assert "partition lake.shop.ordrs: table 'lake.shop.ordrs' is not known" in caplog.text
    assert list(instance.get_dynamic_partitions("tables")) == ["lake.shop.orders"]


def test_a_partition_that_dagster_has_needs_no_look_at_any_table(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    # With this setting no services can be opened.
    monkeypatch.setenv("COMPACTION_TASK_SLOTS", "none")
    instance.add_dynamic_partitions("table_nodes", ["lake.shop.gone/0//0-0"])
    validate(instance, "lake.shop.gone/0//0-0")


def test_the_assets_still_share_their_partitions() -> None:
    by_name = {spec.key.path[-1]: spec.partitions_def for spec in defs.resolve_all_asset_specs()}
    assert by_name["compacted_files"] == by_name["delta_files"]
