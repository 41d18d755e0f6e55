"""A store for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compaction_pipeline_tests.object_store import ObjectStore, object_store


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running
