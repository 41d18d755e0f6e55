"""Gives scenarios the Spark session with Iceberg's Java library, which reads their tables beside the reference reader."""

from __future__ import annotations

from compaction_pipeline_tests.interop.conftest import iceberg_spark

__all__ = ["iceberg_spark"]
