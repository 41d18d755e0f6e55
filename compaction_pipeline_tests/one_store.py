"""The watermark of a table with one store, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compaction_pipeline.core.dependencies.watermark import Said, Watermark, WatermarkRule, WatermarkStore, watermark_of_stores
from compaction_pipeline.core.upkeep.history import History


def watermark_of(
    history: History, properties: Mapping[str, str], rule: WatermarkRule, remembered: Mapping[int, Sequence[Said]] | None = None
) -> Watermark | None:
    """What `watermark_of_stores` says of a plain table."""
    return watermark_of_stores((WatermarkStore(history, properties, remembered or {}),), rule)
