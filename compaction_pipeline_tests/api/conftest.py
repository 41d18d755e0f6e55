"""A small real lake with its HTTP application, and clients with a token of each role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from compaction_pipeline.api.app import http_app
from compaction_pipeline_tests.api.liars import DOORS, Door, lies_table
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.services.close()


@pytest.fixture
def served(house: House) -> Iterator[Served]:
    with TestClient(http_app(house.services), raise_server_exceptions=False) as client:
        yield Served(house, client)


@pytest.fixture(params=["over HTTP", "in this process"])
def door(request: pytest.FixtureRequest, served: Served) -> Door:
    """Each way by which a worker reports."""
    return DOORS[request.param](served)


@pytest.fixture
def table(served: Served) -> LakeTable:
    """A table with one waiting task, made for lies."""
    return lies_table(served)
