"""What scenarios share: Iceberg's Java library as the second judge."""

from __future__ import annotations

from compaction_pipeline_tests.interop.conftest import iceberg_spark

__all__ = ["iceberg_spark"]
