"""The assets: those that sensors and runs materialize, and those that a person launches.

`delta_files`, `table_health` and `table_figures` are materialized. `compacted_files` and `compaction_records` are launched. Their functions
only translate: partition keys into nodes, and outcomes into events. A node gets its own event at the moment when it is committed. So it
stays green even if the run crashes later, or another node fails.
"""

# This module has no `from __future__ import annotations`. Dagster cannot resolve the annotation of a config parameter that is a string.
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.defs.choices import Choices, owners_of
from compaction_pipeline.defs.health_events import freshness
from compaction_pipeline.defs.launched_partitions import nodes_by_name, tables_by_name
from compaction_pipeline.defs.names import GROUP, POOL, Names
from compaction_pipeline.defs.partitions import OF_ALL_NODES, OF_SOME_NODES
from compaction_pipeline.defs.quiet import asset_with_backfill_policy
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline.defs.requests import nodes_by_table, table_named
from compaction_pipeline.defs.resources import PYSPARK, merging_services, services_of
from compaction_pipeline.settings import Settings


def delta_files(names: Names, settings: Settings) -> dg.AssetSpec:
    """What writers left in the nodes."""
    return dg.AssetSpec(
        names.delta_files,
        partitions_def=names.table_nodes,
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        description=(
            "What writers left in each table node: files, small files, delete files and bytes. `snapshot_sensor` materializes a node when "
            "a snapshot has changed it. The data version of the node is that snapshot.\n\n"
            "When nothing new appears here for long, see that `snapshot_sensor` is on, and read what its last tick says."
        ),
    )


def table_health(names: Names, settings: Settings) -> dg.AssetSpec:
    """The page to look at first."""
    return dg.AssetSpec(
        names.table_health,
        deps=[dg.AssetDep(names.delta_files, partition_mapping=OF_ALL_NODES)],
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        freshness_policy=freshness(settings),
        description=(
            "The page to look at first: files over time, the worst tables and nodes with their reasons, the work under way, and for each "
            "table the reason why something or nothing happens. Sensors and runs materialize it when something has changed, and every 5 "
            "minutes.\n\n"
            "When its freshness fails, the program stands still: nobody has looked for new snapshots for an hour. See that Dagster's "
            "daemon runs, and that `snapshot_sensor` and `fragmentation_sensor` are on.\n\n"
            "HEALTHY: nothing is due. DUE: work is planned or runs. WAITING: something holds it back, for example the table's next "
            "commit. The reason of a FAILING node names the file or the rule. The reason of a REFUSED one says what the table would need."
        ),
    )


def table_figures(names: Names, settings: Settings) -> dg.AssetSpec:
    """Plots over time."""
    return dg.AssetSpec(
        names.table_figures,
        deps=[dg.AssetDep(names.delta_files, partition_mapping=OF_ALL_NODES)],
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        description=(
            "Figures over time, as plots: of all tables together, and of the 20 tables with the most small files and delete files. "
            "`fragmentation_sensor` materializes it when something has changed, every five minutes at most."
        ),
    )


class CompactedFilesConfig(dg.Config):
    """How the launched partitions are compacted."""

    type: CompactionType = Field(
        default=CompactionType.MAJOR,
        description=(
            "MINOR merges small files. MAJOR also rewrites files with many deleted rows and joins undersized files. "
            "FULL rewrites every file whose rewrite gains something."
        ),
    )


def compacted_files(names: Names, settings: Settings, choices: Choices) -> dg.AssetsDefinition:
    """The asset whose launch compacts nodes."""

    @asset_with_backfill_policy(
        key=names.compacted_files,
        partitions_def=nodes_by_name(names, choices),
        deps=[names.delta_files],
        backfill_policy=dg.BackfillPolicy.multi_run(100),
        output_required=False,
        pool=POOL,
        required_resource_keys={names.compaction, PYSPARK},
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg", "pyspark"},
        description=(
            "The compacted table nodes. Launch or backfill partitions to merge them now on Spark and to commit them at once. The run "
            "ignores thresholds, but leaves alone nodes that would not get better: such a node is green, with 0 files and the reason. "
            "Sensors use `compact_job` instead.\n\n"
            "A red run names each node that failed and why. The other nodes are committed. Nothing that a reader sees ever changes."
        ),
    )
    def asset(context: dg.AssetExecutionContext, config: CompactedFilesConfig) -> Iterator[None]:
        _compact(names, context, config)
        yield from ()  # Returning None would log a second materialization over the node's own, so this generator yields nothing.

    return asset


def _compact(names: Names, context: dg.AssetExecutionContext, config: CompactedFilesConfig) -> None:
    """Plan, merge and commit the launched nodes, one table after the other."""
    services = merging_services(names, context)
    report = RunReport(names, context, services, context.partition_keys)
    asked = nodes_by_table(services, context.partition_keys, report.unknown)
    report.asked_for(asked)
    for table, nodes in asked.items():
        request = PlanRequest((config.type,), frozenset(nodes.values()), force=True)
        try:
            with report.saying_what_is_left():
                outcome = services.compact_tables.compact(table, request, run_id=context.run.run_id, listener=report, help_others=True)
        except CompactionError as error:
            report.not_planned(table, error)
            continue
        report.compacted(outcome, nodes)
    report.close()


def compaction_records(names: Names, settings: Settings, choices: Choices) -> dg.AssetsDefinition:
    """The asset whose launch commits tables."""

    @dg.asset(
        key=names.compaction_records,
        partitions_def=tables_by_name(names, choices),
        deps=[dg.AssetDep(names.compacted_files, partition_mapping=OF_SOME_NODES)],
        output_required=False,
        required_resource_keys={names.compaction},
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        description=(
            "One record for each commit of ours, with all its figures. Every commit appears here, whoever made it. A table becomes a "
            "partition with its first commit, or when you name it. Materialize a table to commit now the merged tasks that wait for "
            "'self-optimizing.commit.interval'. When no task waits, the run says so.\n\n"
            "When a run is red, read the reason. A conflict only means that the table has changed; its nodes are planned again."
        ),
    )
    def asset(context: dg.AssetExecutionContext) -> Iterator[None]:
        _commit(names, context)
        yield from ()

    return asset


def _commit(names: Names, context: dg.AssetExecutionContext) -> None:
    """Commit the table's merged tasks now, as one record."""
    services = services_of(names, context)
    report = RunReport(names, context, services)
    for key in context.partition_keys:
        try:
            commit = services.one_table.commit_now(table_named(services, key), context.run.run_id)
        except CompactionError as error:
            report.not_done([key], error)
            continue
        context.log.info(commit.reason)
        for record in commit.settled:
            report.committed(record)
        if commit.record:
            report.committed(commit.record)
    report.close()
