"""Gives benchmarks what tests have: the services with their inner parts, and a lake of real files. The test tree is not installed with the
package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from compaction_pipeline_tests.defs.lake import Lake, key
from compaction_pipeline_tests.opened import OpenedServices, merge_on_spark, opened

__all__ = ["Lake", "OpenedServices", "key", "merge_on_spark", "opened"]
