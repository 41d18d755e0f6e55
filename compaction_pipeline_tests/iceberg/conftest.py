from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
