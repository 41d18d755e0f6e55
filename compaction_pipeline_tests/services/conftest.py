from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.state import sqlite_stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Empty stores."""
    stores = sqlite_stores(tmp_path)
    yield stores
    stores.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.services.close()
