"""The assets: what is observed (`delta_files`, `table_health`) and what a person launches (`compacted_files`, `compaction_records`).

Bodies translate: partition keys → nodes, outcomes → events. A node is green by its own event the moment that it is committed, so
a crash, or a bad node beside it, takes nothing from it.
"""

# No `from __future__ import annotations` here: Dagster does not resolve a config parameter whose annotation is a string.
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.defs.keys import COMPACTED_FILES, COMPACTION_RECORDS, DELTA_FILES, GROUP, OWNERS, POOL, TABLE_HEALTH
from compaction_pipeline.defs.partitions import table_nodes, tables
from compaction_pipeline.defs.report import RunReport
from compaction_pipeline.defs.requests import nodes_by_table, table_named
from compaction_pipeline.defs.resources import Compaction

delta_files = dg.AssetSpec(
    DELTA_FILES,
    partitions_def=table_nodes,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"iceberg"},
    description=(
        "What writers left in each table node: files, small files, delete files, bytes. **Observed** by `snapshot_sensor` when a snapshot "
        "changed the node, never materialized by us: its bar stays at 0 materialized by nature. The data version is that snapshot.\n\n"
        "Nothing new here for long: is `snapshot_sensor` on, and what does its last tick say?"
    ),
)

table_health = dg.AssetSpec(
    TABLE_HEALTH,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"iceberg"},
    description=(
        "The page to look at first: the worst nodes and why, what is executing, the queue, and one reason per table for what happens "
        "or does not. Observed when something changed.\n\n"
        "A node is FAILING: its reason names the file or the rule. REFUSED: the reason says what the table would need."
    ),
)


class CompactedFilesConfig(dg.Config):
    """How launched partitions are compacted."""

    type: CompactionType = Field(
        default=CompactionType.MAJOR,
        description="MINOR merges small files, MAJOR also rewrites files with many deleted rows and joins undersized ones, FULL all",
    )


@dg.asset(
    key=COMPACTED_FILES,
    partitions_def=table_nodes,
    deps=[DELTA_FILES],
    backfill_policy=dg.BackfillPolicy.multi_run(100),
    output_required=False,
    pool=POOL,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"iceberg", "pyspark"},
    description=(
        "Table nodes, compacted. Launch or backfill partitions to merge them **now** on Spark and commit at once: thresholds are ignored, "
        "but a gain is needed (without one the node is green with 0 files and the reason). Machines use `compact_job`.\n\n"
        "Red: the run names each node that failed and why; the others are committed. Nothing that a reader sees ever changes."
    ),
)
def compacted_files(context: dg.AssetExecutionContext, config: CompactedFilesConfig, compaction: Compaction) -> Iterator[None]:
    """Plan, merge and commit the launched nodes, table by table."""
    services = compaction.services()
    report = RunReport(context, services)
    for table, nodes in nodes_by_table(services, context.partition_keys, report.unknown).items():
        request = PlanRequest((config.type,), frozenset(nodes.values()), force=True)
        try:
            outcome = services.compact_table.compact(table, request, run_id=context.run.run_id, on_result=report.task_ended)
        except CompactionError as error:
            report.not_done(nodes, error)
            continue
        report.compacted(outcome, nodes)
    report.close()
    yield from ()  # A generator that yields nothing: returning None would log a second materialization over the node's own.


@dg.asset(
    key=COMPACTION_RECORDS,
    partitions_def=tables,
    deps=[COMPACTED_FILES],
    output_required=False,
    group_name=GROUP,
    owners=OWNERS,
    kinds={"iceberg"},
    description=(
        "One record per commit of ours, by table, with all figures. Every commit is mirrored here, whoever made it. Materialize a table to "
        "commit **now** what is merged and waits for 'self-optimizing.commit.interval'; with nothing prepared it says so.\n\n"
        "Red: see the record's reason; a conflict only means that the table moved, and its nodes are planned again."
    ),
)
def compaction_records(context: dg.AssetExecutionContext, compaction: Compaction) -> Iterator[None]:
    """Commit now what is prepared on this table, as one record."""
    services = compaction.services()
    report = RunReport(context, services)
    for key in context.partition_keys:
        try:
            commit = services.compact_table.commit_now(table_named(services, key), context.run.run_id)
        except CompactionError as error:
            report.not_done([key], error)
            continue
        context.log.info(commit.reason)
        for record in commit.settled:
            report.committed(record)
        if commit.record:
            report.committed(commit.record)
    report.close()
    yield from ()
