"""The two kinds of stores that must behave alike: SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.postgres import postgres_server, postgres_state, postgres_stores, postgres_url
from compaction_pipeline_tests.state import sqlite_stores

__all__ = ["postgres_server", "postgres_state", "postgres_stores", "postgres_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Empty stores of one kind."""
    if request.param == "sqlite":
        return sqlite_stores(tmp_path)
    stores: Stores = request.getfixturevalue("postgres_stores")
    return stores
