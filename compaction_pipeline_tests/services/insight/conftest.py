from __future__ import annotations

import pytest

from compaction_pipeline_tests.services.insight.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()
