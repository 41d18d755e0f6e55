"""A small lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline_tests.services.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.services.close()
