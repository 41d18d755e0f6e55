"""The three kinds of stores that must behave alike: fake, SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.storage.stores import Stores, open_stores
from compaction_pipeline_tests.fakes import fake_stores
from compaction_pipeline_tests.postgres import postgres_server, postgres_state, postgres_stores, postgres_url

__all__ = ["postgres_server", "postgres_state", "postgres_stores", "postgres_url"]


@pytest.fixture(params=["fake", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Empty stores of one kind."""
    if request.param == "fake":
        return fake_stores()
    if request.param == "sqlite":
        return open_stores(f"sqlite:///{tmp_path / 'state.db'}")
    stores: Stores = request.getfixturevalue("postgres_stores")
    return stores
