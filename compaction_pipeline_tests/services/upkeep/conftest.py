from __future__ import annotations

from collections.abc import Iterator

import pytest

from compaction_pipeline_tests.rest_catalog import RestServer, rest_server
from compaction_pipeline_tests.services.house import House


@pytest.fixture
def server(house: House) -> Iterator[RestServer]:
    """A REST catalog in front of the catalog of the house."""
    with rest_server(house.lake.catalog) as running:
        yield running
