"""Lets assets and jobs of users wait for tables: `ready_partitions` for their automation conditions, `when_ready` for a sensor of a job.

Both work in any code location that has the settings of the program, and ask about the time window of each partition of the user's own
definition. `compaction_pipeline.automation` exports them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import dagster as dg

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.ready_ticks import CHECK, Source, check_now, job_tick, most_runs, ready_tick
from compaction_pipeline.defs.ready_windows import by_time
from compaction_pipeline.defs.resources import opened_services
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends
from compaction_pipeline.settings import load_settings

MOST_TABLES = 100
"""So many tables may stand in one `ready_definitions`. Each costs a request to its catalog in every round."""

_GROUP = "readiness"


@dataclass(frozen=True, slots=True)
class ReadyPartitions:
    """A table whose partitions become materialized when they are ready. Put `asset` into the `deps` of your asset.

    `figures` is the key of an asset without partitions beside it, which has the plots. Both get their events from the sensor that
    `ready_definitions` makes.
    """

    source: Source

    @property
    def asset(self) -> dg.AssetSpec:
        """The external asset. It has the partitions of your definition."""
        source = self.source
        return dg.AssetSpec(
            source.key,
            partitions_def=source.partitions_def,
            group_name=_GROUP,
            kinds={"iceberg"},
            metadata={"compaction/table": str(source.table)},
            description=(
                f"A partition is materialized when the data of {source.table} for its time is complete, by the table's property "
                f"`compaction.ready-when`. Nobody launches it. When the check `{CHECK}` is red, the table has taken that back for the "
                "partitions that the check names: look what the table's writers did."
            ),
        )

    @property
    def figures(self) -> dg.AssetKey:
        return self.source.figures


def ready_partitions(
    table: str, partitions_def: dg.PartitionsDefinition[Any], *, key: dg.AssetKey | Sequence[str] | str | None = None
) -> ReadyPartitions:
    """Make an external asset whose partitions become materialized when a table is ready for their time.

    `table` is `catalog.namespace.table`. `partitions_def` is by time, in any time zone; it says from when on partitions are asked about.
    `key` is the key of the asset, by default `ready/catalog/namespace/table`; give one when two of them are of the same table. Put the
    result into `ready_definitions`. Nothing is opened here. Raises ConfigError for a bad name and for a definition that is not by time.
    """
    identifier = TableIdentifier.parse(table)
    by_default = ["ready", identifier.catalog, *identifier.namespace, identifier.name]
    asset_key = dg.AssetKey.from_coercible(by_default if key is None else key)
    return ReadyPartitions(Source(identifier, by_time(partitions_def, f"ready_partitions of {table}"), asset_key))


def ready_definitions(
    *tables: ReadyPartitions, name: str = "readiness_sensor", interval_seconds: int | None = None, state_url: str | None = None
) -> dg.Definitions:
    """Return the assets of these tables, a blocking check on each, and the one sensor that looks after all of them. Merge it with yours.

    `name` is the sensor's, and it is on by default. `interval_seconds` is by default the setting `sensor_interval_seconds`, and `state_url`
    the setting of this name: where the program keeps its catalogs. Raises ConfigError for more than 100 tables, and for two of one key.
    """
    sources = [each.source for each in tables]
    keys = [source.key.to_user_string() for source in sources]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if len(sources) > MOST_TABLES:
        raise ConfigError(f"ready_definitions got {len(sources)} tables but takes at most {MOST_TABLES}: split them, each with a `name`")
    if twice:
        raise ConfigError(f"ready_definitions got two tables with the asset key {twice[0]!r}: give one of them another `key`")
    choices = _choices(state_url)
    return dg.Definitions(
        assets=[*(each.asset for each in tables), *(_figures(each.source) for each in tables)],
        asset_checks=[_check(source, choices) for source in sources],
        sensors=[_sensor(sources, choices, name, interval_seconds)],
    )


def when_ready(
    table: str,
    partitions_def: dg.PartitionsDefinition[Any],
    *,
    job: Any,
    name: str | None = None,
    interval_seconds: int | None = None,
    state_url: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Make a sensor that asks for one run of your job for each partition for whose time a table is ready, the oldest first.

    `job` is a job whose partitions are those of `partitions_def`, for example that of `dg.define_asset_job`. A tick asks for at most 20
    runs, or 5 for each second of the interval. A partition is asked for once, also when the table takes back that it is ready and it
    becomes ready anew: `ready_partitions` tells of that. `name` is by default that of the job with `_when_ready`. The other arguments are
    as in `ready_partitions` and `ready_definitions`. Raises ConfigError as these do.
    """
    identifier = TableIdentifier.parse(table)
    source = Source(identifier, by_time(partitions_def, f"when_ready of {table}"), dg.AssetKey(["when_ready", job.name]))
    choices = _choices(state_url)
    every = interval_seconds or load_settings().sensor_interval_seconds

    @dg.sensor(
        name=name or f"{re.sub(r'[^A-Za-z0-9_]', '_', job.name)}_when_ready",
        job=job,
        minimum_interval_seconds=every,
        default_status=default_status,
        description=f"Asks for a run of each partition when {table} is ready for its time, at most {most_runs(every)} in a tick.",
    )
    @abandoned_when_dagster_ends
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(opened_services(choices)) as services:
            if not services.explore_catalogs.entries():
                return dg.SensorResult(skip_reason=NO_CATALOG, cursor=context.cursor)
            return job_tick(services, source, context.cursor, most_runs(every))

    return evaluate


def _sensor(sources: Sequence[Source], choices: Choices, name: str, interval_seconds: int | None) -> dg.SensorDefinition:
    every = interval_seconds or load_settings().sensor_interval_seconds

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(key for source in sources for key in (source.key, source.figures))),
        minimum_interval_seconds=every,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Materializes partitions of external assets when the tables behind them are ready for their time, and judges the check "
        f"`{CHECK}`. It starts no run.",
    )
    @abandoned_when_dagster_ends
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(opened_services(choices)) as services:
            if not services.explore_catalogs.entries():
                return dg.SensorResult(skip_reason=NO_CATALOG, cursor=context.cursor)
            return ready_tick(services, context.instance, sources, context.cursor, every)

    return evaluate


def _figures(source: Source) -> dg.AssetSpec:
    return dg.AssetSpec(
        source.figures,
        group_name=_GROUP,
        kinds={"iceberg"},
        description=f"How many partitions of {source.key.to_user_string()} wait for {source.table}, and how far its watermark is behind, "
        "over time: see the plots under Metadata. When `watermark_stands_seconds` grows, no writer moves the watermark any more.",
    )


def _check(source: Source, choices: Choices) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=source.key,
        name=CHECK,
        blocking=True,
        description="Red while partitions that were materialized here are not ready any more, because the table took that back: a "
        "rollback, a stream that was restarted, or files that came late. It names them.",
    )
    def judged() -> dg.AssetCheckResult:
        with closing(opened_services(choices)) as services:
            event = check_now(services, dg.OpExecutionContext.get().instance, source)
        return dg.AssetCheckResult(passed=event.passed, severity=event.severity, description=event.description, metadata=event.metadata)

    return judged


def _choices(state_url: str | None) -> Choices:
    return Choices({} if state_url is None else {"state_url": state_url})
