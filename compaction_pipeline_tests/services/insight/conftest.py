from __future__ import annotations

import pytest

from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.services.insight.desk import Desk


@pytest.fixture
def desk(stores: Stores) -> Desk:
    return Desk(stores)
