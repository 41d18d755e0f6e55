"""What a user of the demo's tables may write: a daily asset that waits until the day of `events` is complete. A code location of its own.

`make demo` loads it beside the program's definitions. Stop the writer of `events` for a while, and the next day waits:
`kill -STOP $(pgrep -f 'demo.writer events')`, and later `kill -CONT …`.
"""

# This module has no `from __future__ import annotations`. Dagster looks at the annotation of the context.
import dagster as dg

from compaction_pipeline.automation import ready_definitions, ready_partitions
from compaction_pipeline.demo.options import CATALOG, read_options
from compaction_pipeline.demo.tables import EVENTS, NAMESPACE
from compaction_pipeline.demo.warehouse import bought_between

DAYS = dg.DailyPartitionsDefinition(read_options().first_day)
EVENTS_READY = ready_partitions(f"{CATALOG}.{NAMESPACE}.{EVENTS.name}", DAYS)


@dg.asset(
    partitions_def=DAYS,
    deps=[EVENTS_READY.asset],
    # Each day once, when it is there, and not while the table has taken days back.
    automation_condition=dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())
    & dg.AutomationCondition.all_deps_blocking_checks_passed(),
    group_name="readiness",
    description="What was bought on a day. It runs when the watermark of `events` has passed the day's end, so it never counts half a day. "
    "Days of the demo last a minute and a half.",
)
def daily_sales(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Counts one day of events."""
    window = context.partition_time_window
    events, bought = bought_between(read_options(), window.start, window.end)
    return dg.MaterializeResult(metadata={"events_count": events, "bought_amount": float(bought)})


defs = dg.Definitions.merge(
    ready_definitions(EVENTS_READY),
    dg.Definitions(
        assets=[daily_sales],
        sensors=[
            dg.AutomationConditionSensorDefinition(
                "daily_automation", target=[daily_sales], default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=5
            )
        ],
        executor=dg.in_process_executor,
    ),
)
