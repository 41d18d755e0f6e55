"""A code location of somebody else, beside ours in one workspace: the asset that stands for `lake.shop.orders`, and a copy of it."""

import dagster as dg

from compaction_pipeline.automation import compacted_since_last_update, compactions_of

ORDERS = dg.AssetSpec(["analytics", "orders"], description="The table lake.shop.orders, which a stream writes.")


@dg.asset(deps=[ORDERS, compactions_of("lake.shop.orders")], automation_condition=compacted_since_last_update())
def copy_of_orders() -> None:
    """Stands for a copy in another system."""


defs = dg.Definitions(
    assets=[ORDERS, copy_of_orders],
    sensors=[
        dg.AutomationConditionSensorDefinition(
            "their_automation", target="*", default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=5
        )
    ],
)
