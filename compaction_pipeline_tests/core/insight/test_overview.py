"""Which nodes are shown first."""

from __future__ import annotations

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import worst_first
from compaction_pipeline_tests.defs.values import overview


def test_order_is_by_health_then_fragmentation_then_small_files() -> None:
    few = overview(1, data_files=2, small_data_files=2)
    many = overview(2, data_files=501, small_data_files=500)
    half = overview(3, data_files=900, small_data_files=450)
    waiting = overview(4, HealthStatus.WAITING, data_files=900, small_data_files=900)
    failing = overview(5, HealthStatus.FAILING, data_files=1, small_data_files=0)
    assert worst_first([waiting, half, few, failing, many]) == (failing, many, few, half, waiting)
