"""A code location of somebody else, beside ours in one workspace.

It has the asset that stands for `lake.shop.orders`, a copy of that, and an asset that waits for days of `lake.shop.returns`.
"""

import dagster as dg

from compaction_pipeline.automation import compacted_since_last_update, compactions_of, ready_definitions, ready_partitions

ORDERS = dg.AssetSpec(["analytics", "orders"], description="The table lake.shop.orders, which a stream writes.")


@dg.asset(deps=[ORDERS, compactions_of("lake.shop.orders")], automation_condition=compacted_since_last_update())
def copy_of_orders() -> None:
    """Stands for a copy in another system."""


DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
RETURNS = ready_partitions("lake.shop.returns", DAYS)


@dg.asset(
    partitions_def=DAYS,
    deps=[RETURNS.asset],
    automation_condition=dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())
    & dg.AutomationCondition.all_deps_blocking_checks_passed(),
)
def returns_of_a_day() -> None:
    """Stands for a report of one day."""


defs = dg.Definitions.merge(
    ready_definitions(RETURNS),
    dg.Definitions(
        assets=[ORDERS, copy_of_orders, returns_of_a_day],
        sensors=[
            dg.AutomationConditionSensorDefinition(
                "their_automation", target="*", default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=5
            )
        ],
    ),
)
