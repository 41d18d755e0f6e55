"""What tests look for in the facts of a table."""

from __future__ import annotations

from compaction_pipeline.core.dependencies.ports import TableFacts
from compaction_pipeline.core.dependencies.watermark import Watermark, WatermarkStore, watermark_of_stores, watermark_rule


def watermark_in(facts: TableFacts) -> Watermark | None:
    """The watermark of the table, of which nothing is remembered."""
    stores = [WatermarkStore(one.history, one.properties) for one in facts.stores]
    return watermark_of_stores(stores, watermark_rule(facts.stores[0].properties))
